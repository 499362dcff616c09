{{/* Parts that the pods of all roles share. */}}

{{/* `image` is {repository, tag, digest}. A digest takes precedence over a tag; the default is the chart's appVersion. */}}
{{- define "ws-ladder.image" -}}
{{- $image := .image -}}
{{- $repository := $image.repository -}}
{{- with .root.Values.image.registry }}{{ $repository = printf "%s/%s" . $repository }}{{ end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository ($image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* Requests = limits, so that the pod is Guaranteed. */}}
{{- define "ws-ladder.resources" -}}
limits:
  cpu: {{ .cpu | quote }}
  memory: {{ .memory | quote }}
requests:
  cpu: {{ .cpu | quote }}
  memory: {{ .memory | quote }}
{{- end -}}

{{/* The CPUs of a role in the plan, as a quantity; an integer stays an integer, for the static CPU manager. */}}
{{- define "ws-ladder.cpu" -}}
{{- $cpus := 1 -}}
{{- with dig "cpu" .role "cpus" nil .root.Values.plan }}{{ $cpus = . }}{{ end -}}
{{- $milli := round (mulf $cpus 1000) 0 | int64 -}}
{{- if mod $milli 1000 -}}
{{- printf "%dm" $milli -}}
{{- else -}}
{{- div $milli 1000 -}}
{{- end -}}
{{- end -}}

{{/* The evidence agent beside a container whose CPU clocks and cgroup it reads; the pod must share its process namespace. */}}
{{- define "ws-ladder.evidence" -}}
- name: evidence
  image: {{ include "ws-ladder.image" (dict "root" . "image" .Values.operator.image) | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args:
    - evidence
    - --host
    - 0.0.0.0
    - --port
    - "9101"
  ports:
    - name: evidence
      containerPort: 9101
  readinessProbe:
    tcpSocket:
      port: evidence
    periodSeconds: 2
  resources:
    {{- include "ws-ladder.resources" .Values.evidence.resources | nindent 4 }}
  securityContext:
    {{- include "ws-ladder.containerSecurity" . | nindent 4 }}
{{- end -}}

{{- define "ws-ladder.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
readOnlyRootFilesystem: true
{{- end -}}

{{/*
Labels of a role's pods beside the chart's own; values.schema.json refuses those that would replace one of the chart's.
They are not in selectors, which can't be changed.
*/}}
{{- define "ws-ladder.podLabels" -}}
{{- with index .root.Values.scheduling .role "labels" }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* Annotations of a role's pods. */}}
{{- define "ws-ladder.podAnnotations" -}}
{{- with index .root.Values.scheduling .role "annotations" }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* Settings of a pod from its role's `scheduling` and the images' secrets; `role` is a key of `scheduling`. */}}
{{- define "ws-ladder.pod" -}}
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
  {{- with index .root.Values.scheduling .role "sysctls" }}
  sysctls:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with index .root.Values.scheduling .role }}
{{- range $key := list "priorityClassName" "runtimeClassName" }}
{{- with index $.root.Values.scheduling $.role $key }}
{{ $key }}: {{ . | quote }}
{{- end }}
{{- end }}
{{- range $key := list "nodeSelector" "affinity" "tolerations" "topologySpreadConstraints" }}
{{- with index $.root.Values.scheduling $.role $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (has .role (list "worker" "inference")) (not (index .root.Values.scheduling .role "affinity")) }}
affinity:
  {{- include "ws-ladder.apart" . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Keeps a pod that loads the service away from the service's nodes: where it can, or always. */}}
{{- define "ws-ladder.apart" -}}
podAntiAffinity:
  {{- if eq .root.Values.isolation.require "node" }}
  requiredDuringSchedulingIgnoredDuringExecution:
    - {{- include "ws-ladder.besideService" .root | nindent 6 }}
  {{- else }}
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        {{- include "ws-ladder.besideService" .root | nindent 8 }}
  {{- end }}
{{- end -}}

{{/* Nodes with a pod of the service. */}}
{{- define "ws-ladder.besideService" -}}
topologyKey: kubernetes.io/hostname
{{- $target := include "ws-ladder.target" . | fromYaml }}
{{- with $target.pods }}
namespaces: [{{ .namespace | quote }}]
labelSelector:
  matchLabels:
    {{- toYaml .labels | nindent 4 }}
{{- else }}
labelSelector:
  matchLabels:
    {{- include "ws-ladder.selectorLabels" (dict "root" . "component" "service") | nindent 4 }}
{{- end }}
{{- end -}}
