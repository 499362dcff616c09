{{/* A tier as the value of a label; "search" for the Job of a search. */}}
{{- define "ws-ladder.tier" -}}
{{- if eq (toString .tier) "search" }}{{ quote .tier }}{{ else }}{{ .tier | int64 | quote }}{{ end -}}
{{- end -}}

{{/*
The Job of a tier or of a search, all of its spec: nothing in it may depend on the chart's version, and its hash is in the Job's name,
because a Job can't be changed.
*/}}
{{- define "ws-ladder.jobSpec" -}}
{{- $protocol := index .root.Values.protocols (include "ws-ladder.protocol" (dict "root" .root "name" .climb.service)) -}}
{{- $workers := include "ws-ladder.workers" (dict "root" .root "tier" .tier "replicas" .climb.replicas) | int64 -}}
suspend: true
completionMode: Indexed
completions: {{ $workers }}
parallelism: {{ $workers }}
backoffLimit: 0
podFailurePolicy:
  rules:
    # A drained node or an eviction says nothing about the worker.
    - action: Ignore
      onPodConditions:
        - type: DisruptionTarget
          status: "True"
    # Killed: the operator judges it, names an OOM kill, and repeats the trial.
    - action: Ignore
      onExitCodes:
        containerName: worker
        operator: In
        values: [137, 143]
    - action: FailJob
      onExitCodes:
        operator: NotIn
        values: [0]
{{- if not (kindIs "invalid" .root.Values.job.ttlSecondsAfterFinished) }}
ttlSecondsAfterFinished: {{ .root.Values.job.ttlSecondsAfterFinished | int64 }}
{{- end }}
template:
  metadata:
    labels:
      {{- include "ws-ladder.selectorLabels" (dict "root" .root "component" "worker") | nindent 6 }}
      ws-ladder.dev/service: {{ .climb.service | quote }}
      ws-ladder.dev/ladder: {{ include "ws-ladder.ladder" .climb | quote }}
      ws-ladder.dev/tier: {{ include "ws-ladder.tier" . }}
      {{- with include "ws-ladder.podLabels" (dict "root" .root "role" "worker") }}
      {{- . | nindent 6 }}
      {{- end }}
    {{- with include "ws-ladder.podAnnotations" (dict "root" .root "role" "worker") }}
    annotations:
      {{- . | nindent 6 }}
    {{- end }}
  spec:
    {{- include "ws-ladder.pod" (dict "root" .root "role" "worker") | nindent 4 }}
    automountServiceAccountToken: false
    restartPolicy: Never
    terminationGracePeriodSeconds: 10
    containers:
      - name: worker
        image: {{ include "ws-ladder.image" (dict "root" .root "image" $protocol.image) | quote }}
        imagePullPolicy: {{ .root.Values.image.pullPolicy }}
        args:
          - --coordinator
          - {{ include "ws-ladder.url" (dict "root" .root "port" 8080) }}
          - --worker
          - $(JOB_COMPLETION_INDEX)
        env:
          {{- if $protocol.tokens }}
          - name: WSE_BENCH_SECRET
            valueFrom:
              secretKeyRef:
                name: {{ include "ws-ladder.secret" .root | quote }}
                key: jwt-secret
          {{- end }}
          - name: COORDINATOR_TOKEN
            valueFrom:
              secretKeyRef:
                name: {{ include "ws-ladder.secret" .root | quote }}
                key: coordinator-token
          {{- with include "ws-ladder.env" (list $protocol.env) }}
          {{- . | trim | nindent 10 }}
          {{- end }}
        resources:
          {{- include "ws-ladder.resources" (dict "cpu" (include "ws-ladder.cpu" (dict "root" .root "role" "worker")) "memory" $protocol.resources.memory) | nindent 10 }}
        securityContext:
          {{- include "ws-ladder.containerSecurity" . | nindent 10 }}
        {{- with include "ws-ladder.targetMount" .root }}
        volumeMounts:
          {{- . | nindent 10 }}
        {{- end }}
    {{- with include "ws-ladder.targetVolume" .root }}
    volumes:
      {{- . | nindent 6 }}
    {{- end }}
{{- end -}}
