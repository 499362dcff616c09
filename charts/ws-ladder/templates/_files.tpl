{{/*
The two files that the operator reads. `toYaml` and `toJson` keep integers; printing one would turn 1000000 into 1e+06.
*/}}

{{- define "ws-ladder.planFile" -}}
{{ toYaml .Values.plan }}
{{- end -}}

{{- define "ws-ladder.clusterFile" -}}
{{- $protocols := dict -}}
{{- range $name, $protocol := .Values.protocols -}}
{{- $entry := pick $protocol "worker" "workloads" "formats" "loads" -}}
{{- with $protocol.inference }}{{ $_ := set $entry "inference" . }}{{ end -}}
{{- with $protocol.worker_env }}{{ $_ := set $entry "worker_env" . }}{{ end -}}
{{- $_ := set $protocols $name $entry -}}
{{- end -}}
{{- $services := dict -}}
{{- range $name, $service := .Values.services -}}
{{- if $service.enabled -}}
{{- $entry := pick $service "description" "protocol" "books" -}}
{{- with $service.protocolCheck }}{{ $_ := set $entry "protocol_check" . }}{{ end -}}
{{- with $service.warmupSeconds }}{{ $_ := set $entry "warmup_seconds" . }}{{ end -}}
{{- $worker_env := dict -}}
{{- range $key := dig $service.protocol "worker_env" (list) $.Values.protocols -}}
{{- if hasKey ($service.env | default dict) $key -}}
{{- $_ := set $worker_env $key (index $service.env $key | toString) -}}
{{- end -}}
{{- end -}}
{{- with $worker_env }}{{ $_ := set $entry "env" . }}{{ end -}}
{{- $_ := set $entry "image" (include "ws-ladder.image" (dict "root" $ "image" $service.image)) -}}
{{- $_ := set $services $name $entry -}}
{{- end -}}
{{- end -}}
{{- $targets := list -}}
{{- range include "ws-ladder.climbs" . | fromJsonArray -}}
{{- if .deployment -}}
{{- $target := pick . "service" "workload" "variant" "deployment" -}}
{{- $_ := set $target "replicas" (.replicas | int64) -}}
{{- $_ := set $target "ports" (dict "ws" 5006 "metrics" 9100 "evidence" 9101) -}}
{{- with .inference -}}
{{- $_ := set $target "inference" (dict "deployment" . "ports" (dict "http" 9000 "evidence" 9101)) -}}
{{- end -}}
{{- $companions := list -}}
{{- range .companions -}}
{{- $companion := index $.Values.companions .name -}}
{{- $ports := dict "evidence" 9101 -}}
{{- with $companion.ports.metrics }}{{ $_ := set $ports "metrics" (int64 .) }}{{ end -}}
{{- $image := include "ws-ladder.image" (dict "root" $ "image" $companion.image) -}}
{{- $companions = append $companions (dict "name" .name "deployment" .deployment "image" $image "ports" $ports) -}}
{{- end -}}
{{- with $companions }}{{ $_ := set $target "companions" . }}{{ end -}}
{{- $targets = append $targets $target -}}
{{- end -}}
{{- end -}}
{{- $jobs := list -}}
{{- range include "ws-ladder.jobs" . | fromJsonArray -}}
{{- /* The Job of a search is for every load. */}}
{{- $jobs = append $jobs (omit . "spec" (eq (toString .tier) "search" | ternary "tier" "spec")) -}}
{{- end -}}
schema: 1
run_id: {{ .Values.run.id | quote }}
{{- with .Values.run.retry }}
retry: {{ . | quote }}
{{- end }}
release: {{ .Release.Name | quote }}
namespace: {{ .Release.Namespace | quote }}
lease: {{ include "ws-ladder.operator" . | quote }}
coordinator_url: {{ include "ws-ladder.url" (dict "root" . "port" 8080) }}
{{- if ne .Values.isolation.require "none" }}
isolation: {{ .Values.isolation.require | quote }}
{{- end }}
{{- with include "ws-ladder.target" . }}
described_target:
  {{- . | nindent 2 }}
{{- end }}
{{- if .Values.nodeEvidence.enabled }}
node_evidence_port: 9102
{{- end }}
protocols:
  {{- toYaml $protocols | nindent 2 }}
inference:
  inference-sim:
    description: {{ .Values.inferenceSim.description | quote }}
    image: {{ include "ws-ladder.image" (dict "root" . "image" .Values.inferenceSim.image) | quote }}
services:
  {{- toYaml $services | nindent 2 }}
targets:
  {{- toYaml $targets | nindent 2 }}
jobs:
  {{- toYaml $jobs | nindent 2 }}
{{- end -}}
