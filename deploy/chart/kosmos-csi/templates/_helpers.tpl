{{- define "kosmos-csi.labels" -}}
app.kubernetes.io/name: kosmos-csi
app.kubernetes.io/component: {{ . }}
{{- end }}

{{/* What every object of the chart carries, whatever its component. */}}
{{- define "kosmos-csi.metadata" -}}
app.kubernetes.io/name: kosmos-csi
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* Where an image is: global.imageRegistry takes the place of the registry in its name, and the path stays. */}}
{{- define "kosmos-csi.repository" -}}
{{- $registry := (.root.Values.global | default dict).imageRegistry -}}
{{- if $registry }}{{ $registry | trimSuffix "/" }}/{{ regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" .repository "" }}{{ else }}{{ .repository }}{{ end }}
{{- end }}

{{/* Prints something if a namespace has Secrets of members. */}}
{{- define "kosmos-csi.hasMembers" -}}
{{- range (lookup "v1" "Secret" . "").items }}{{ if hasKey (.metadata.labels | default dict) "kosmos.csi.io/member" }}true{{ end }}{{ end }}
{{- end }}

{{/* An image of ours: the default tag is the version of this chart. With a digest, that counts. */}}
{{- define "kosmos-csi.image" -}}
{{ include "kosmos-csi.repository" (dict "root" .root "repository" .image.repository) }}:{{ .image.tag | default .root.Values.image.tag | default .root.Chart.AppVersion }}{{ with .image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "kosmos-csi.pullSecrets" -}}
{{- $names := list }}
{{- range concat (.Values.imagePullSecrets | default list) ((.Values.global | default dict).imagePullSecrets | default list) }}
{{- if kindIs "string" . }}{{ $names = append $names . }}{{ else }}{{ $names = append $names .name }}{{ end }}
{{- end }}
{{- with uniq $names }}
imagePullSecrets:
  {{- range . }}
  - name: {{ toYaml . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* What is logged: of a word alone, this driver's own lines from that level on, and of all else warnings at most. */}}
{{- define "kosmos-csi.logs" -}}
{{- if regexMatch "^[a-z]+$" .Values.logs.level }}{{ ternary .Values.logs.level "warn" (has .Values.logs.level (list "error" "off")) }},kosmos_csi={{ .Values.logs.level }},kube_client=off{{ else }}{{ .Values.logs.level }}{{ end }}
{{- end }}

{{/* What a component's pods carry besides the labels that they are selected by. */}}
{{- define "kosmos-csi.podLabels" -}}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The level `restricted` of the Pod Security Standards. */}}
{{- define "kosmos-csi.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  {{- range $key, $id := .Values.podSecurityContext }}
  {{- if not (kindIs "invalid" $id) }}
  {{ $key }}: {{ $id | int64 }}
  {{- end }}
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "kosmos-csi.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* Where a replica may run: apart from the others, if that is possible. */}}
{{- define "kosmos-csi.placement" -}}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ toYaml . }}
{{- end }}
topologySpreadConstraints:
  {{- with .values.topologySpreadConstraints }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "kosmos-csi.labels" .component | nindent 8 }}
  {{- end }}
{{- end }}

{{/* Alive: the process answers. Ready: it knows the host. A member's outage is neither. */}}
{{- define "kosmos-csi.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 2
  failureThreshold: 30
livenessProbe:
  httpGet: {path: /livez, port: admin}
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: admin}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/* Whether csi-snapshotter runs: it cannot where the host does not serve its kinds. */}}
{{- define "kosmos-csi.snapshots" -}}
{{- $wanted := .Values.sidecars.snapshotter.enabled | toString -}}
{{- $served := and (.Capabilities.APIVersions.Has "snapshot.storage.k8s.io/v1") (.Capabilities.APIVersions.Has "groupsnapshot.storage.k8s.io/v1") -}}
{{- if or (eq $wanted "true") (and (eq $wanted "auto") $served) }}true{{ end }}
{{- end }}

{{/* What a sidecar may have: of memory by how many volumes it keeps in it, where its own values do not say. */}}
{{- define "kosmos-csi.sidecarResources" -}}
{{- $resources := deepCopy (.values.resources | default dict) }}
{{- $limits := $resources.limits | default dict }}
{{- $volumes := .root.Values.sidecars.expectedVolumes }}
{{- if and $volumes (not (hasKey $limits "memory")) }}
{{- $mebibytes := add 64 (div (add (mul 16 (int64 $volumes)) 1023) 1024) }}
{{- $_ := set $resources "limits" (set $limits "memory" (printf "%dMi" $mebibytes)) }}
{{- end }}
{{- toYaml $resources }}
{{- end }}

{{/* One sidecar: what all have in common, its own flags, and what the user adds. */}}
{{- define "kosmos-csi.sidecar" -}}
- name: csi-{{ .name }}
  image: {{ include "kosmos-csi.repository" (dict "root" .root "repository" .values.image.repository) }}:{{ .values.image.tag }}{{ with .values.image.digest }}@{{ . }}{{ end }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args:
    - --csi-address=/csi/csi.sock
    - --http-endpoint=:{{ .port }}
    - --leader-election
    - --leader-election-namespace={{ .root.Release.Namespace }}
    # the other replica's is in the place of one that is gone after some 14 s. One that cannot say for 10 s that it is there ends
    - --leader-election-lease-duration=12s
    - --leader-election-renew-deadline=10s
    - --leader-election-retry-period=2s
    # of a sidecar's own 5 requests a second there would be less than two volumes a second
    - --kube-api-qps=200
    - --kube-api-burst=400
    # the controller says within 30 s how far it is, and is asked again soon
    - --timeout=60s
    - --retry-interval-start=500ms
    - --retry-interval-max=15s
    {{- range .args }}
    - {{ . }}
    {{- end }}
    {{- range .values.extraArgs }}
    - {{ . | quote }}
    {{- end }}
  env:
    - name: NAMESPACE
      valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
    - name: POD_NAME
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
  ports:
    - name: {{ .name }}
      containerPort: {{ .port }}
  livenessProbe:
    httpGet: {path: /healthz/leader-election, port: {{ .name }}}
    initialDelaySeconds: 10
    timeoutSeconds: 10
    periodSeconds: 20
  resources:
    {{- include "kosmos-csi.sidecarResources" . | nindent 4 }}
  {{- include "kosmos-csi.containerSecurity" . | nindent 2 }}
  volumeMounts:
    - name: socket
      mountPath: /csi
{{- end }}
