{{/* Whether a kube-scheduler of ours runs in the extender's pods. */}}
{{- define "gpu-admission.beside" -}}
{{- if and .Values.scheduler.enabled .Values.scheduler.beside }}yes{{ end }}
{{- end }}

{{/* The account of kube-scheduler: that of the pods that it runs in. */}}
{{- define "gpu-admission.schedulerAccount" -}}
{{- if include "gpu-admission.beside" . }}{{ include "gpu-dev.fullname" . }}{{ else }}{{ .Values.scheduler.name }}{{ end }}
{{- end }}

{{- define "gpu-admission.schedulerImage" -}}
{{- $version := semver (include "gpu-dev.kubeVersion" .) }}
{{- include "gpu-dev.reference" (list .Values.scheduler.image.repository (.Values.scheduler.image.tag | default (printf "v%d.%d.%d" $version.Major $version.Minor $version.Patch)) .Values.scheduler.image.digest) }}
{{- end }}

{{- define "gpu-admission.tlsSecret" -}}
{{ .Values.tls.existingSecret | default (printf "%s-tls" (include "gpu-dev.fullname" .)) }}
{{- end }}

{{/* Whose pods kube-scheduler has bound by the extender: "shares" or "all"; "none" where Volcano alone asks. Values of a
former chart have no scheduler.bind: with extender.assumeAt=bind everything goes on as it was. */}}
{{- define "gpu-admission.bind" -}}
{{- $among := ternary (dict "filter" "shares" "auto" "shares" "" "shares") (dict "filter" "none") .Values.scheduler.enabled }}
{{- .Values.scheduler.bind | default (get $among (.Values.extender.assumeAt | default "")) | default "all" }}
{{- end }}

{{/* Of a scheduler that is not ours nobody knows whether it leaves binding to the extender: that is found out. */}}
{{- define "gpu-admission.assumeAt" -}}
{{- $known := or .Values.scheduler.enabled .Values.scheduler.bind }}
{{- $said := ternary "filter" (ternary "bind" "auto" (not (not $known))) (eq (include "gpu-admission.bind" .) "shares") }}
{{- .Values.extender.assumeAt | default $said }}
{{- end }}

{{/* Whether the API server can be told what of a pod may be written: clusters before 1.30 know no policies. */}}
{{- define "gpu-admission.policies" -}}
{{- if semverCompare ">=1.30.0-0" (include "gpu-dev.kubeVersion" .) }}yes{{ end }}
{{- end }}

{{/* Whether it writes on pods: where it is held to a few annotations, or where it can't do without. */}}
{{- define "gpu-admission.writes" -}}
{{- if or (include "gpu-admission.policies" .) (ne (include "gpu-admission.assumeAt" .) "bind") }}yes{{ end }}
{{- end }}

{{- define "gpu-admission.candidates" -}}
{{- .Values.extender.candidates | default (ternary "best" "all" .Values.scheduler.enabled) }}
{{- end }}

{{/* What can't be together says so in a sentence. */}}
{{- define "gpu-admission.check" -}}
{{- if and .Values.scheduler.enabled (eq .Values.scheduler.name (include "gpu-dev.fullname" .)) }}
{{- fail (printf "scheduler.name is %s, as the extender's own objects are called. Give the scheduler another name." .Values.scheduler.name) }}
{{- end }}
{{- if and (eq (include "gpu-admission.bind" .) "shares") (eq (include "gpu-admission.assumeAt" .) "bind") }}
{{- fail "scheduler.bind=shares has kube-scheduler bind pods with whole GPUs by itself, so these must count from its question on, and extender.assumeAt is bind. Leave extender.assumeAt away, or set scheduler.bind=all." }}
{{- end }}
{{- if and .Values.tls.enabled (include "gpu-admission.beside" .) }}
{{- fail "tls.enabled is for who asks through the Service: in one pod with kube-scheduler nothing leaves the machine. Set scheduler.beside=false, or leave it away." }}
{{- end }}
{{- if and .Values.tls.enabled .Values.tls.existingSecret (not .Values.tls.caBundle) .Values.scheduler.enabled }}
{{- fail "tls.existingSecret is set and tls.caBundle is not: kube-scheduler would believe anybody. Give base64 of the PEM of who signed it." }}
{{- end }}
{{- if and .Values.tls.caBundle (not .Values.tls.existingSecret) }}
{{- fail "tls.caBundle is set and tls.existingSecret is not: whoever brings the authority brings the certificate." }}
{{- end }}
{{- end }}

{{/* The Secret's data: as they are in the cluster, else made now. One answer for all templates of one rendering. */}}
{{- define "gpu-admission.pair" -}}
{{- if not .Values.keptPair }}
{{- $found := lookup "v1" "Secret" (include "gpu-dev.namespace" .) (include "gpu-admission.tlsSecret" .) }}
{{- $data := dict }}
{{- if $found }}
{{- $data = $found.data }}
{{- else }}
{{- $service := include "gpu-dev.fullname" . }}
{{- $short := printf "%s.%s" $service (include "gpu-dev.namespace" .) }}
{{- $names := list $service $short (printf "%s.svc" $short) (printf "%s.svc.cluster.local" $short) }}
{{- $days := int .Values.tls.validDays }}
{{- $ca := genCAWithKey (printf "%s authority" $service) $days (genPrivateKey "ecdsa") }}
{{- $pair := genSignedCertWithKey (printf "%s.svc" $short) nil $names $days $ca (genPrivateKey "ecdsa") }}
{{- $data = dict "ca.crt" ($ca.Cert | b64enc) "tls.crt" ($pair.Cert | b64enc) "tls.key" ($pair.Key | b64enc) }}
{{- end }}
{{- $_ := set .Values "keptPair" $data }}
{{- end }}
{{- end }}

{{/* What kube-scheduler goes by. */}}
{{- define "gpu-admission.configuration" -}}
{{- include "gpu-admission.check" . -}}
# Clusters before 1.25 know the same under another name.
apiVersion: kubescheduler.config.k8s.io/{{ if semverCompare ">=1.25.0-0" (include "gpu-dev.kubeVersion" .) }}v1{{ else }}v1beta3{{ end }}
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: {{ .Values.scheduler.name }}
leaderElection:
  leaderElect: true
  resourceNamespace: {{ include "gpu-dev.namespace" . }}
  resourceName: {{ .Values.scheduler.name }}
# By itself it sends 50 requests a second: it would bind no more pods than so many, and the others would wait for that.
clientConnection:
  qps: 500
  burst: 1000
# Else, from a hundred nodes on, it looks no further once it has found some, and asks about these alone.
percentageOfNodesToScore: 100
extenders:
  {{- $shares := list .Values.extender.shareResource .Values.extender.memoryResource | uniq }}
  {{- if eq (include "gpu-admission.bind" .) "all" }}
  {{- include "gpu-admission.entry" (dict "root" . "binds" true "resources" (concat .Values.extender.gpuResources $shares | uniq)) | nindent 2 }}
  {{- else }}
  {{- with without (uniq .Values.extender.gpuResources) .Values.extender.shareResource .Values.extender.memoryResource }}
  # It binds pods with whole GPUs by itself.
  {{- include "gpu-admission.entry" (dict "root" $ "binds" false "resources" .) | nindent 2 }}
  {{- end }}
  # Which cards a share has must be written before the pod starts: so the extender binds it. No resource may be in both.
  {{- include "gpu-admission.entry" (dict "root" . "binds" true "resources" $shares) | nindent 2 }}
  {{- end }}
{{- end }}

{{/* One of kube-scheduler's extenders: this one, asked about pods with any of these `resources`; or it `binds` them. */}}
{{- define "gpu-admission.entry" -}}
{{- $ := .root -}}
- urlPrefix: {{ if $.Values.tls.enabled }}https{{ else }}http{{ end }}://{{ if $.Values.scheduler.beside }}127.0.0.1{{ else }}{{ include "gpu-dev.fullname" $ }}.{{ include "gpu-dev.namespace" $ }}{{ end }}:{{ $.Values.extender.port }}/scheduler
  filterVerb: predicates
  prioritizeVerb: priorities
  {{- if .binds }}
  bindVerb: bind
  {{- end }}
  weight: {{ $.Values.scheduler.weight }}
  nodeCacheCapable: true
  enableHTTPS: {{ $.Values.tls.enabled }}
  {{- if $.Values.tls.enabled }}
  tlsConfig:
    {{- if $.Values.tls.caBundle }}
    caData: {{ $.Values.tls.caBundle }}
    {{- else }}
    {{- include "gpu-admission.pair" $ }}
    caData: {{ index $.Values.keptPair "ca.crt" }}
    {{- end }}
  {{- end }}
  httpTimeout: 15s
  ignorable: false
  managedResources:
    {{- range .resources }}
    - name: {{ . }}
    {{- end }}
{{- end }}

{{- define "gpu-admission.schedulerSelector" -}}
app.kubernetes.io/name: {{ .Values.scheduler.name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gpu-admission.kubeScheduler" -}}
- name: kube-scheduler
  image: {{ include "gpu-admission.schedulerImage" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command:
    - kube-scheduler
    - --config=/etc/kubernetes/my-scheduler/gpu-scheduler-config.yaml
    - --secure-port=10259
  {{- include "gpu-dev.env" (list "" .Values.scheduler.extraEnv "scheduler.extraEnv") | nindent 2 }}
  startupProbe:
    httpGet: {path: /healthz, port: 10259, scheme: HTTPS}
    periodSeconds: 5
    timeoutSeconds: 5
    failureThreshold: 60
  livenessProbe:
    httpGet: {path: /healthz, port: 10259, scheme: HTTPS}
    periodSeconds: 10
    timeoutSeconds: 15
    failureThreshold: 8
  resources: {{- toYaml .Values.scheduler.resources | nindent 4 }}
  securityContext: {{- include "gpu-dev.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - {name: config, mountPath: /etc/kubernetes/my-scheduler, readOnly: true}
{{- end }}

{{/* What is said of every pod here: (list . selector) */}}
{{- define "gpu-admission.placing" -}}
{{- with index . 0 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- include "gpu-dev.placement" (list .Values (index $ 1) .Values.replicaCount) }}
terminationGracePeriodSeconds: 30
securityContext: {{- include "gpu-dev.podSecurity" . | nindent 2 }}
{{- end }}
{{- end }}
