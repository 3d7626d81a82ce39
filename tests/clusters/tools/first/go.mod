module kosmos-csi/tools/first

go 1.26.0
