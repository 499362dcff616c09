{{/* A service of the user's own, which the plan describes: the value `target`. */}}

{{/*
Where it is, as the operator reads it; empty if the plan describes no service. Fails where a value is missing that another one needs.
*/}}
{{- define "ws-ladder.target" -}}
{{- $value := .Values.target -}}
{{- $names := keys ((.Values.plan.websocket | default dict).services | default dict) | sortAlpha -}}
{{- $given := or $value.url $value.service.name $value.deployment.name -}}
{{- if and $given (not $names) -}}
{{- fail "target: the plan describes no service; give it a section `websocket`, or leave target out" -}}
{{- end -}}
{{- if $names -}}
{{- if not $given -}}
{{- fail (printf "target: the plan describes %s itself, and nothing says where it is; set target.url, or target.service.name and target.service.port" (join ", " $names)) -}}
{{- end -}}
{{- if ne 1 (len .Values.plan.services) -}}
{{- fail (printf "target: it is one service, and the plan climbs %s" (join ", " .Values.plan.services)) -}}
{{- end -}}
{{- if not (has (first .Values.plan.services) $names) -}}
{{- fail (printf "target: the plan climbs %s and describes %s" (first .Values.plan.services) (join ", " $names)) -}}
{{- end -}}
{{- if and $value.url (or $value.service.name $value.deployment.name) -}}
{{- fail "target: give either url or a service of the cluster (target.service, target.deployment)" -}}
{{- end -}}
{{- if and $value.service.name (not $value.service.port) -}}
{{- fail "target.service.port: the port of the Service is missing" -}}
{{- end -}}
{{- $namespace := $value.namespace | default .Release.Namespace -}}
{{- $direct := or $value.direct (and $value.deployment.name (not $value.service.name)) -}}
{{- if and $direct $value.url -}}
{{- fail "target.direct: a url has no pods that are known; leave one of the two out" -}}
{{- end -}}
{{- if and $direct (not (and $value.pods.labels $value.pods.port)) -}}
{{- fail "target.pods: without a Service, and with target.direct, the addresses of pods are loaded; set target.pods.labels and target.pods.port" -}}
{{- end -}}
{{- if $value.deployment.scale -}}
{{- if not (and $value.deployment.name $value.pods.labels) -}}
{{- fail "target.deployment.scale: set target.deployment.name and target.pods.labels" -}}
{{- end -}}
{{- if ne $namespace .Release.Namespace -}}
{{- fail (printf "target.deployment.scale: the operator may scale only Deployments of the release's namespace %s, and target.namespace is %s; leave scale out, or install the release there" .Release.Namespace $namespace) -}}
{{- end -}}
{{- end -}}
{{- $target := dict -}}
{{- if $value.url -}}
{{- $_ := set $target "url" $value.url -}}
{{- else if $value.service.name -}}
{{- $_ := set $target "authority" (printf "%s.%s.svc:%d" $value.service.name $namespace (int64 $value.service.port)) -}}
{{- else -}}
{{- $_ := set $target "authority" (printf "%s.%s.pods:%d" $value.deployment.name $namespace (int64 $value.pods.port)) -}}
{{- end -}}
{{- if and $value.pods.labels (not $value.url) -}}
{{- $pods := dict "namespace" $namespace "labels" $value.pods.labels -}}
{{- with $value.pods.port }}{{ $_ := set $pods "port" (int64 .) }}{{ end -}}
{{- $_ := set $target "pods" $pods -}}
{{- end -}}
{{- if $direct }}{{ $_ := set $target "direct" true }}{{ end -}}
{{- if $value.deployment.scale -}}
{{- $_ := set $target "scale" (dict "deployment" $value.deployment.name "replicas" (int64 $value.deployment.replicas)) -}}
{{- end -}}
{{- with $value.version }}{{ $_ := set $target "version" . }}{{ end -}}
{{- with $value.countersUrl }}{{ $_ := set $target "counters_url" . }}{{ end -}}
{{- with $value.iMayLoadThisHost }}{{ $_ := set $target "may_load" . }}{{ end -}}
{{- if $value.files }}{{ $_ := set $target "files" (include "ws-ladder.targetFolder" .) }}{{ end -}}
{{- toYaml $target -}}
{{- end -}}
{{- end -}}

{{/* Where the files of the plan are mounted. */}}
{{- define "ws-ladder.targetFolder" -}}
/etc/ws-ladder-files
{{- end -}}

{{- define "ws-ladder.targetMount" -}}
{{- if and (include "ws-ladder.target" .) .Values.target.files -}}
- name: files
  mountPath: {{ include "ws-ladder.targetFolder" . }}
  readOnly: true
{{- end -}}
{{- end -}}

{{- define "ws-ladder.targetVolume" -}}
{{- if and (include "ws-ladder.target" .) .Values.target.files -}}
- name: files
  {{- toYaml .Values.target.files | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* What workers may connect to: the pods of the service at any port that isn't known better, or the port of an external URL. */}}
{{- define "ws-ladder.targetEgress" -}}
{{- $value := .Values.target -}}
{{- if $value.url -}}
{{- $port := regexReplaceAll "^wss?://[^/?]*:([0-9]+)([/?].*)?$" $value.url "${1}" -}}
- ports:
    - port: {{ $port | int64 }}
  {{- with $value.egress }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- else -}}
- to:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: {{ $value.namespace | default .Release.Namespace | quote }}
      podSelector:
        {{- if $value.pods.labels }}
        matchLabels:
          {{- toYaml $value.pods.labels | nindent 10 }}
        {{- else }} {}
        {{- end }}
  {{- with $value.pods.port }}
  ports:
    - port: {{ . | int64 }}
  {{- end }}
{{- end -}}
{{- end -}}
