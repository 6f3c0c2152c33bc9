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

{{- define "gpu-dev.affinity" -}}
{{- if .Values.affinity }}
{{- toYaml .Values.affinity }}
{{- else -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {{- include "gpu-dev.selector" . | nindent 12 }}
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
