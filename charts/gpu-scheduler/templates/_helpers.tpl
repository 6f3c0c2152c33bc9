{{/* Whether the certificate is ours to make and renew. */}}
{{- define "gpu-scheduler.keepsCertificates" -}}
{{- if and .Values.webhook.enabled (not .Values.webhook.caBundle) (not .Values.webhook.certManager.enabled) }}yes{{ end }}
{{- end }}

{{/* Where the API server asks, and about which namespaces. */}}
{{- define "gpu-scheduler.asked" }}
    clientConfig:
      service:
        namespace: {{ .Release.Namespace }}
        name: {{ include "gpu-dev.webhook" . }}
        path: /mutate
        port: 443
      {{- if .Values.webhook.caBundle }}
      caBundle: {{ .Values.webhook.caBundle | quote }}
      {{- else if not .Values.webhook.certManager.enabled }}
      caBundle: {{ index .Values.keptCertificates "ca.crt" | quote }}
      {{- end }}
    namespaceSelector:
      matchExpressions:
        - key: kubernetes.io/metadata.name
          operator: NotIn
          values: {{ concat (list "kube-system" .Release.Namespace) .Values.webhook.excludedNamespaces | uniq | toJson }}
{{- end }}
