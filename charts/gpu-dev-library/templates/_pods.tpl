{{/* What every pod of ours may do, and where it goes. */}}

{{- define "gpu-dev.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "gpu-dev.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Where pods go: (list values selector replicas). Two or more are spread over hosts, unless the values say how else. */}}
{{- define "gpu-dev.placement" -}}
{{- $values := index . 0 }}{{ $selector := index . 1 | fromYaml }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- $spread := $values.topologySpreadConstraints }}
{{- if and (not $spread) (gt (int (index . 2)) 1) }}
{{- $spread = list (dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway") }}
{{- end }}
{{- with $spread }}
topologySpreadConstraints:
  {{- range . }}
  - {{- toYaml (hasKey . "labelSelector" | ternary . (set (deepCopy .) "labelSelector" (dict "matchLabels" $selector))) | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* A container's variables: (list own extra "extender.extraEnv"). `own` is YAML; none of `extra` may say again what it says.
Our programs read names of GPU_DEV_ in upper and lower case alike. */}}
{{- define "gpu-dev.env" -}}
{{- $own := index . 0 | trim }}{{ $names := dict }}
{{- range fromYamlArray $own }}{{ $_ := set $names .name true }}{{ end }}
{{- range index . 1 }}
{{- $name := ternary (upper .name) .name (upper .name | hasPrefix "GPU_DEV_") }}
{{- if hasKey $names $name }}
{{- fail (printf "%s names %s, which is set already, by the chart or by another of its values. Leave it out there." (index $ 2) .name) }}
{{- end }}
{{- $_ := set $names $name true }}
{{- end }}
{{- if $names }}
env:
  {{- with $own }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with index . 1 }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* One of several may be taken away at a time; of one, it can't be said. */}}
{{- define "gpu-dev.podDisruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "gpu-dev.fullname" . }}
  namespace: {{ include "gpu-dev.namespace" . }}
  labels: {{- include "gpu-dev.labels" . | nindent 4 }}
spec:
  minAvailable: 1
  selector:
    matchLabels: {{- include "gpu-dev.selector" . | nindent 6 }}
{{- end }}

{{- define "gpu-dev.webhookService" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "gpu-dev.webhook" . }}
  namespace: {{ include "gpu-dev.namespace" . }}
  labels: {{- include "gpu-dev.labels" . | nindent 4 }}
spec:
  selector: {{- include "gpu-dev.selector" . | nindent 4 }}
  ports:
    - {name: webhook, port: 443, targetPort: webhook}
{{- end }}
