{{/* A pod of `helm test`: runs the operator's program with `args` against the web port. */}}
{{- define "ws-ladder.testPod" -}}
apiVersion: v1
kind: Pod
metadata:
  name: "{{ include "ws-ladder.fullname" .root }}-{{ .name }}"
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "ws-ladder.labels" (dict "root" .root "component" "test") | nindent 4 }}
  annotations:
    helm.sh/hook: test
    helm.sh/hook-weight: {{ .weight | quote }}
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  {{- include "ws-ladder.pod" (dict "root" .root "role" "operator") | nindent 2 }}
  automountServiceAccountToken: false
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
    - name: {{ .name }}
      image: {{ include "ws-ladder.image" (dict "root" .root "image" .root.Values.operator.image) | quote }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args:
        {{- toYaml .args | nindent 8 }}
      resources:
        {{- include "ws-ladder.resources" .root.Values.tests.resources | nindent 8 }}
      securityContext:
        {{- include "ws-ladder.containerSecurity" . | nindent 8 }}
      # `assert` downloads the files for its decision first.
      volumeMounts:
        - name: tmp
          mountPath: /tmp
  volumes:
    - name: tmp
      emptyDir: {}
{{- end -}}
