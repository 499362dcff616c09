{{/*
Names and labels. Names of Jobs, Deployments and Services have at most 52 characters (a tier's second Job 54), so that
the suffixes that the cluster appends for pods still fit into the 63 of a label.
*/}}

{{/*
Shortens a text to at most `max` characters: the middle of a longer one is replaced by a hash of the whole, or removed
if `hashed` is false because the caller appends a hash.
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

{{/* Converts a text to a part of an object's name, which may not have the capitals, `_` and `.` of a variant. */}}
{{- define "ws-ladder.part" -}}
{{- . | lower | replace "_" "-" | replace "." "-" -}}
{{- end -}}

{{/* A ladder (workload and variant) as the value of a label. */}}
{{- define "ws-ladder.ladder" -}}
{{- $part := include "ws-ladder.part" (printf "%s-%s" .workload .variant) | trimAll "-" -}}
{{- include "ws-ladder.cut" (dict "text" $part "max" 63) -}}
{{- end -}}

{{- define "ws-ladder.name" -}}
{{- .Values.nameOverride | default .Chart.Name -}}
{{- end -}}

{{/* 42 characters leave room for the longest suffix. A Service's name must begin with a letter, a release's need not. */}}
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

{{/* Labels that select pods; they don't change with the chart's version. */}}
{{- define "ws-ladder.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ws-ladder.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- with .component }}
app.kubernetes.io/component: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Labels of objects, not of pod templates: they change with the chart's version, and a Job's template can't change. */}}
{{- define "ws-ladder.labels" -}}
{{ include "ws-ladder.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | quote }}
{{- end -}}
