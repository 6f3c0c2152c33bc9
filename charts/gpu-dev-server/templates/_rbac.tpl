{{/* An account: (list . name values) */}}
{{- define "gpu-dev-server.account" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $values := index . 2 -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ include "gpu-dev-server.cp" $root }}
  labels: {{- include "gpu-dev-server.labels" (list $root $name) | nindent 4 }}
  {{- with dig "serviceAccount" "annotations" (dict) $values }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* What an account may: (list . name namespace account rules); without a namespace in all of the cluster. */}}
{{- define "gpu-dev-server.role" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $namespace := index . 2 }}{{ $account := index . 3 }}{{ $kind := ternary "Role" "ClusterRole" (ne $namespace "") -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ $name }}
  {{- with $namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "gpu-dev-server.labels" (list $root $account) | nindent 4 }}
rules: {{- index . 4 | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ $name }}
  {{- with $namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "gpu-dev-server.labels" (list $root $account) | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name }}
subjects:
  - {kind: ServiceAccount, name: {{ $account }}, namespace: {{ include "gpu-dev-server.cp" $root }}}
{{- end }}
