{{/*
Reads the plan. Helm's `merge` and `default` treat `false`, `0` and "" as missing, so maps are merged key by key here.
*/}}

{{/* Not empty if a plan describes a service itself: {root, name}. */}}
{{- define "ws-ladder.described" -}}
{{- if hasKey ((.root.Values.plan.websocket | default dict).services | default dict) .name }}true{{ end -}}
{{- end -}}

{{/* The name of a service's protocol: {root, name}. */}}
{{- define "ws-ladder.protocol" -}}
{{- if include "ws-ladder.described" . -}}
websocket
{{- else -}}
{{- (index .root.Values.services .name).protocol -}}
{{- end -}}
{{- end -}}

{{/* Fails if a service that the plan names is neither described by it nor in `services`, or is disabled: {root, name}. */}}
{{- define "ws-ladder.service" -}}
{{- if include "ws-ladder.described" . -}}
{{- if not (hasKey .root.Values.protocols "websocket") -}}
{{- fail "protocols: no protocol \"websocket\", which services need that a plan describes" -}}
{{- end -}}
{{- else -}}
{{- $service := index .root.Values.services .name -}}
{{- if not $service -}}
{{- fail (printf "plan.services: no service %q; known: %s" .name (keys .root.Values.services | sortAlpha | join ", ")) -}}
{{- end -}}
{{- if not $service.enabled -}}
{{- fail (printf "plan.services: %s is disabled; set services.%s.enabled=true or take it out of the plan" .name .name) -}}
{{- end -}}
{{- if not (hasKey .root.Values.protocols $service.protocol) -}}
{{- fail (printf "services.%s.protocol: no protocol %q; known: %s" .name $service.protocol (keys .root.Values.protocols | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $seen := dict -}}
{{- range $companion := $service.companions -}}
{{- if not (hasKey $.root.Values.companions $companion.name) -}}
{{- fail (printf "services.%s.companions: no companion %q; known: %s" $.name $companion.name (keys $.root.Values.companions | sortAlpha | join ", ")) -}}
{{- end -}}
{{- if hasKey $seen $companion.name -}}
{{- fail (printf "services.%s.companions: %s is listed twice" $.name $companion.name) -}}
{{- end -}}
{{- $_ := set $seen $companion.name true -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Not empty if the plan has a search, so that its run searches and climbs no tiers. */}}
{{- define "ws-ladder.searches" -}}
{{- range .Values.plan.ladders }}{{ if .search }}yes{{ end }}{{ end -}}
{{- end -}}

{{/* Which ladders each service climbs, as JSON: [{service, workload, variant, replicas, env, deployment, inference, inferenceEnv, companions, tiers}]; a companion is {name, deployment, env}. The tiers of a search are ["search"]. One that the plan describes has no Deployment and nothing beside it. */}}
{{- define "ws-ladder.climbs" -}}
{{- $climbs := list -}}
{{- $seen := dict -}}
{{- $plan := .Values.plan -}}
{{- range $index, $ladder := $plan.ladders -}}
{{- $variant := dig "variant" "standard" $ladder -}}
{{- $path := printf "%s/%s" $ladder.workload $variant -}}
{{- if hasKey $seen $path -}}
{{- fail (printf "plan.ladders[%d].variant: %s is listed twice; give each a variant of its own" $index $path) -}}
{{- end -}}
{{- $_ := set $seen $path true -}}
{{- if and $ladder.tiers (include "ws-ladder.searches" $) -}}
{{- fail (printf "plan.ladders[%d].tiers: the plan has a search, so its run searches and climbs no tiers; give the tiers of %s a plan and a run.id of their own" $index $path) -}}
{{- end -}}
{{- range $service := $plan.services -}}
{{- if or (not $ladder.services) (has $service $ladder.services) -}}
{{- include "ws-ladder.service" (dict "root" $ "name" $service) -}}
{{- $env := $ladder.service_env | default dict -}}
{{- $climb := dict "service" $service "workload" $ladder.workload "variant" $variant "env" $env "tiers" (ternary $ladder.tiers (list "search") (empty $ladder.search)) -}}
{{- $replicas := dig "replicas" 1 $ladder | int64 -}}
{{- $_ := set $climb "replicas" $replicas -}}
{{- /* A service of the user's own has no Deployment of the chart. */}}
{{- if not (include "ws-ladder.described" (dict "root" $ "name" $service)) -}}
{{- if and (gt $replicas 1) (index $.Values.services $service).companions -}}
{{- fail (printf "plan.ladders[%d].replicas: %s has companions, which know one pod of it; give this ladder replicas: 1" $index $service) -}}
{{- end -}}
{{- $identity := $env -}}
{{- if (index $.Values.protocols (index $.Values.services $service).protocol).inference -}}
{{- $behind := $ladder.inference_env | default dict -}}
{{- $_ := set $climb "inferenceEnv" $behind -}}
{{- $_ := set $climb "inference" (include "ws-ladder.deployment" (dict "root" $ "name" "inference-sim" "identity" $behind)) -}}
{{- /* A gateway with another simulator has another address for it, so it needs another Deployment. */}}
{{- if $behind }}{{ $identity = list $env $behind }}{{ end -}}
{{- end -}}
{{- $_ := set $climb "deployment" (include "ws-ladder.deployment" (dict "root" $ "name" $service "identity" $identity)) -}}
{{- $companions := list -}}
{{- range $companion := (index $.Values.services $service).companions -}}
{{- /* Two hyphens, because a service's name could equal that of another service and its companion. */}}
{{- $named := dict "root" $ "name" (printf "%s--%s" $service $companion.name) "identity" $identity -}}
{{- $companions = append $companions (dict "name" $companion.name "deployment" (include "ws-ladder.deployment" $named) "env" ($companion.env | default dict)) -}}
{{- end -}}
{{- $_ := set $climb "companions" $companions -}}
{{- end -}}
{{- $climbs = append $climbs $climb -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $climbs -}}
{{- end -}}

{{/* One Deployment for each program and environment, so that the operator never edits a pod template. */}}
{{- define "ws-ladder.deployment" -}}
{{- $name := printf "%s-%s" (include "ws-ladder.fullname" .root) (include "ws-ladder.part" .name) -}}
{{- if .identity -}}
{{- $name = printf "%s-%s" $name (toJson .identity | sha256sum | trunc 8) -}}
{{- end -}}
{{- include "ws-ladder.cut" (dict "text" $name "max" 52) -}}
{{- end -}}

{{/* Not empty if a service of the plan needs the inference simulator. */}}
{{- define "ws-ladder.hasInference" -}}
{{- range include "ws-ladder.climbs" . | fromJsonArray -}}
{{- with .inference }}{{ . }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Not empty if a service of the plan has companions. */}}
{{- define "ws-ladder.hasCompanions" -}}
{{- range include "ws-ladder.climbs" . | fromJsonArray -}}
{{- range .companions }}{{ .name }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Variables with the shared secret and the addresses of a service and its companions; they come before the variables that refer to them. */}}
{{- define "ws-ladder.companionHosts" -}}
{{- if .climb.companions }}
- name: "LINK_SECRET"
  valueFrom:
    secretKeyRef:
      name: {{ include "ws-ladder.secret" .root | quote }}
      key: link-secret
- name: "SERVICE_HOST"
  value: {{ printf "%s.%s.svc" .climb.deployment .root.Release.Namespace | quote }}
{{- end -}}
{{- range .climb.companions }}
- name: {{ printf "%s_HOST" (.name | upper | replace "-" "_") | quote }}
  value: {{ printf "%s.%s.svc" .deployment $.root.Release.Namespace | quote }}
{{- end -}}
{{- end -}}

{{/* Merges maps of variables, later ones over earlier ones, into a list for `env`. */}}
{{- define "ws-ladder.env" -}}
{{- $all := dict -}}
{{- range $map := . -}}
{{- range $key, $value := $map -}}
{{- $_ := set $all $key $value -}}
{{- end -}}
{{- end -}}
{{- range $key, $value := $all }}
- name: {{ $key | quote }}
  value: {{ $value | quote }}
{{- end -}}
{{- end -}}

{{/* Number of workers of a tier, as `WirePlan::workers_for` has it. */}}
{{- define "ws-ladder.workers" -}}
{{- $workers := dig "workers" 1 .root.Values.plan | int64 -}}
{{- $most := dig "connections_per_worker" 0 .root.Values.plan | int64 -}}
{{- if $most -}}
{{- $needed := max $workers (div (sub (add (int64 .tier) $most) 1) $most) -}}
{{- $replicas := int64 .replicas -}}
{{- $workers = mul (div (sub (add $needed $replicas) 1) $replicas) $replicas -}}
{{- end -}}
{{- $workers -}}
{{- end -}}

{{/* Number of workers of the tier that has the most. */}}
{{- define "ws-ladder.mostWorkers" -}}
{{- $most := 1 -}}
{{- range $climb := include "ws-ladder.climbs" . | fromJsonArray -}}
{{- range $tier := $climb.tiers -}}
{{- $most = max $most (include "ws-ladder.workers" (dict "root" $ "tier" $tier "replicas" $climb.replicas) | int64) -}}
{{- end -}}
{{- end -}}
{{- $most -}}
{{- end -}}

{{/* The Jobs of all tiers, as JSON: [{service, workload, variant, tier, job, spare, spec}]; `spec` is YAML. A search has one Job for all its loads, with the tier "search": workers get their share of a load from the operator. The spare has the same spec, for when a worker of the Job crashes: a failed Job can't be released again, and the operator may not create Jobs. */}}
{{- define "ws-ladder.jobs" -}}
{{- $jobs := list -}}
{{- range $climb := include "ws-ladder.climbs" . | fromJsonArray -}}
{{- range $tier := $climb.tiers -}}
{{- if ne (toString $tier) "search" }}{{ $tier = int64 $tier }}{{ end -}}
{{- $spec := include "ws-ladder.jobSpec" (dict "root" $ "climb" $climb "tier" $tier) -}}
{{- $identity := list $.Release.Namespace $.Release.Name $climb.service $climb.workload $climb.variant $tier $.Values.run.id $spec -}}
{{- /* A retry has Jobs of its own, because those of failed trials may have ended. */}}
{{- with $.Values.run.retry }}{{ $identity = append $identity . }}{{ end -}}
{{- $identity = toJson $identity -}}
{{- $tail := printf "-%v-%s" $tier (sha256sum $identity | trunc 8) -}}
{{- $front := printf "%s-%s-%s-%s" (include "ws-ladder.fullname" $) $climb.service $climb.workload $climb.variant -}}
{{- $front = include "ws-ladder.cut" (dict "text" (include "ws-ladder.part" $front) "max" (sub 52 (len $tail)) "hashed" false) -}}
{{- $jobs = append $jobs (dict "service" $climb.service "workload" $climb.workload "variant" $climb.variant "tier" $tier "job" (print $front $tail) "spare" (print $front $tail "-2") "spec" $spec) -}}
{{- end -}}
{{- end -}}
{{- toJson $jobs -}}
{{- end -}}
