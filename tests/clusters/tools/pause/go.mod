module kosmos-csi/tools/pause

go 1.26.0
