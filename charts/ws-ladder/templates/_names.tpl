{{/*
What things are called. Names of Jobs, Deployments and Services stay within 52 characters, so that what the cluster
appends for their pods still fits into the 63 of a label.
*/}}

{{/*
A text of at most `max` characters: what is longer loses its middle to a hash of the whole, or to nothing where `hashed`
is false because a hash follows anyhow.
*/}}
{{- define "ws-ladder.cut" -}}
{{- $text := .text -}}
{{- if gt (len $text) (int .max) -}}
{{- $middle := ternary (printf "-%s-" (sha256sum $text | trunc 8)) "-" (dig "hashed" true .) -}}
{{- $kept := sub (int .max) (len $middle) | int -}}
{{- $head := div (add1 $kept) 2 | int -}}
{{- $tail := sub (len $text) (sub $kept $head) | int -}}
{{- print (substr 0 $head $text | trimSuffix "-") $middle (substr $tail -1 $text | trimPrefix "-") -}}
{{- else -}}
{{- $text -}}
{{- end -}}
{{- end -}}

{{/* A text as a part of a name: plans allow capitals, `_` and `.` in a variant, names of objects don't. */}}
{{- define "ws-ladder.part" -}}
{{- . | lower | replace "_" "-" | replace "." "-" -}}
{{- end -}}

{{/* A ladder as the value of a label. */}}
{{- define "ws-ladder.ladder" -}}
{{- $part := include "ws-ladder.part" (printf "%s-%s" .workload .variant) | trimAll "-" -}}
{{- include "ws-ladder.cut" (dict "text" $part "max" 63) -}}
{{- end -}}

{{- define "ws-ladder.name" -}}
{{- .Values.nameOverride | default .Chart.Name -}}
{{- end -}}

{{/* 42 characters leave room for the longest ending. A Service's name begins with a letter, a release's may not. */}}
{{- define "ws-ladder.fullname" -}}
{{- $name := include "ws-ladder.name" . -}}
{{- $full := .Values.fullnameOverride -}}
{{- if not $full -}}
{{- $full = ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- end -}}
{{- $full = regexReplaceAll "^([0-9])" (include "ws-ladder.part" $full) "r${1}" -}}
{{- include "ws-ladder.cut" (dict "text" $full "max" 42) -}}
{{- end -}}

{{- define "ws-ladder.operator" -}}
{{- include "ws-ladder.fullname" . }}-operator
{{- end -}}

{{- define "ws-ladder.url" -}}
http://{{ include "ws-ladder.operator" .root }}.{{ .root.Release.Namespace }}.svc:{{ .port }}
{{- end -}}

{{- define "ws-ladder.secret" -}}
{{- .Values.auth.existingSecret | default (include "ws-ladder.fullname" .) -}}
{{- end -}}

{{- define "ws-ladder.claim" -}}
{{- .Values.results.existingClaim | default (printf "%s-results" (include "ws-ladder.fullname" .)) -}}
{{- end -}}

{{/* Labels by which pods are found; nothing in them changes with the chart's version. */}}
{{- define "ws-ladder.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ws-ladder.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- with .component }}
app.kubernetes.io/component: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Labels of objects. Not of pod templates: they change with the chart's version, and a Job's template can't. */}}
{{- define "ws-ladder.labels" -}}
{{ include "ws-ladder.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | quote }}
{{- end -}}
