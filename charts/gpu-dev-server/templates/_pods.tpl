{{/* What pods of ours have in common. */}}

{{/* Where and how a component's pods run: (list . component values replicas) */}}
{{- define "gpu-dev-server.placing" -}}
{{- $root := index . 0 }}{{ $values := index . 2 -}}
{{- with $root.Values.global.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.global.hostAliases }}
hostAliases: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $root.Values.priorityClasses.create }}
priorityClassName: {{ $root.Values.global.prefix }}-controlplane
{{- end }}
{{- include "gpu-dev.placement" (list $values (include "gpu-dev-server.selector" (list $root (index . 1))) (index . 3)) }}
{{- end }}

{{/* How a program reaches the database. The password is in a file, and so is all of a URL that is not the chart's own. */}}
{{- define "gpu-dev-server.databaseEnv" -}}
{{- if ne (include "gpu-dev-server.database" .) "external" }}
- name: GPU_DEV_DATABASE_URL
  value: {{ printf "postgresql://%s@%s:5432/%s" .Values.postgres.auth.username (include "gpu-dev-server.databaseHost" .) .Values.postgres.auth.database | quote }}
{{- end }}
{{- if include "gpu-dev-server.databaseCa" . }}
- {name: PGSSLMODE, value: verify-ca}
- {name: PGSSLROOTCERT, value: /secrets/settings/database-ca.crt}
{{- end }}
- {name: GPU_DEV_SECRETS_DIR, value: /secrets/settings}
{{- end }}

{{/* Where the API does its heavy reads, where the chart knows. The password is the database's. */}}
{{- define "gpu-dev-server.replicaEnv" -}}
{{- if .Values.apiService.readsFromReplica }}
{{- with include "gpu-dev-server.replicaHost" . }}
- name: GPU_DEV_DATABASE_REPLICA_URL
  value: {{ printf "postgresql://%s@%s:5432/%s" $.Values.postgres.auth.username . $.Values.postgres.auth.database | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* And where a Secret says it: one more of the API's settings. */}}
{{- define "gpu-dev-server.replicaFile" -}}
{{- $key := include "gpu-dev-server.replicaKey" . }}
{{- if and $key .Values.apiService.readsFromReplica -}}
- secret:
    name: {{ include "gpu-dev-server.databaseSecret" . }}
    items: [{key: {{ $key }}, path: gpu_dev_database_replica_url}]
{{- end }}
{{- end }}

{{/* The environment of a component: (list . settings). What the chart says by itself can't be said in settings. */}}
{{- define "gpu-dev-server.env" -}}
{{- $root := index . 0 }}
{{- include "gpu-dev-server.databaseEnv" $root }}
- {name: GPU_DEV_CLUSTER, value: kubernetes}
- {name: GPU_DEV_KUBERNETES__NAMESPACE, value: {{ include "gpu-dev-server.wl" $root }}}
- {name: GPU_DEV_KUBERNETES__POD_DEFAULTS, value: /configuration/pod-defaults.yaml}
{{- if include "gpu-dev-server.sealSecret" $root }}
- {name: GPU_DEV_SEAL_KEY_FILE, value: /secrets/settings/seal-keys}
{{- end }}
{{- range $name, $value := merge (dict) (index . 1) (include "gpu-dev-server.withCloud" (list $root "settings") | fromYaml) }}
- {name: {{ $name }}, value: {{ include "gpu-dev-server.said" $value | quote }}}
{{- end }}
{{- end }}

{{/* Where the keys are that seal what people say in confidence; empty: nowhere. Where no cluster is asked there would be new ones
     each time, and what was sealed before could not be read. */}}
{{- define "gpu-dev-server.sealSecret" -}}
{{- if or .Values.sealing.existingSecret (include "gpu-dev-server.asked" .) }}
{{- .Values.sealing.existingSecret | default (printf "%s-seal-keys" .Values.global.prefix) }}
{{- end }}
{{- end }}

{{/* What brings the schema, and what waits for it. */}}
{{- define "gpu-dev-server.migrationEnv" -}}
{{- include "gpu-dev.env" (list (include "gpu-dev-server.databaseEnv" .) .Values.migration.extraEnv "migration.extraEnv") }}
{{- end }}

{{/* The CronJobs whose last success the processors tell of; one that the chart does not make is not there. */}}
{{- define "gpu-dev-server.cronJobs" -}}
availability-updater,postgres-backup,reservation-expiry
{{- end }}

{{/* What answers on 8081 besides: (list . settings) */}}
{{- define "gpu-dev-server.healthEnv" -}}
{{ include "gpu-dev-server.env" . | trim }}
- {name: GPU_DEV_HEALTH_LISTEN, value: "0.0.0.0:8081"}
{{- end }}

{{- define "gpu-dev-server.processorEnv" -}}
{{ include "gpu-dev-server.healthEnv" (list . .Values.reservationProcessor.settings) | trim }}
- {name: GPU_DEV_CRON_JOBS, value: {{ include "gpu-dev-server.cronJobs" . | quote }}}
{{- $port := "GPU_DEV_KUBERNETES__AGENT_PORT" }}
{{- if and .Values.nodeAgent.enabled (not (or (hasKey .Values.settings $port) (hasKey .Values.reservationProcessor.settings $port))) }}
- {name: {{ $port }}, value: "9404"}
{{- end }}
{{- include "gpu-dev-server.jobServerEnv" (list . .Values.reservationProcessor.settings) }}
{{- include "gpu-dev-server.filesEnv" (list . .Values.reservationProcessor.settings) }}
{{- $tools := "GPU_DEV_KUBERNETES__SESSION_TOOLS_IMAGE" }}
{{- if not (or (hasKey .Values.settings $tools) (hasKey .Values.reservationProcessor.settings $tools)) }}
{{- with .Values.sessions.toolsImage }}
- {name: {{ $tools }}, value: {{ . | quote }}}
{{- end }}
{{- end }}
{{- end }}

{{/* The image from which jobs get the program for their files: (list . settings). */}}
{{- define "gpu-dev-server.filesEnv" -}}
{{- $name := "GPU_DEV_KUBERNETES__FILES_IMAGE" }}
{{- $own := index . 1 }}
{{- with index . 0 }}
{{- if and .Values.files.enabled (not (or (hasKey .Values.settings $name) (hasKey $own $name))) }}
- {name: {{ $name }}, value: {{ include "gpu-dev-server.image" (list . .Values.reservationProcessor.image) | quote }}}
{{- end }}
{{- $policy := "GPU_DEV_KUBERNETES__FILES_PULL_POLICY" }}
{{- if and .Values.files.enabled (not (or (hasKey .Values.settings $policy) (hasKey $own $policy))) }}
- {name: {{ $policy }}, value: {{ .Values.image.pullPolicy | quote }}}
{{- end }}
{{- end }}
{{- end }}

{{- define "gpu-dev-server.sshEnv" -}}
{{ include "gpu-dev-server.healthEnv" (list . .Values.sshGateway.settings) | trim }}
- {name: GPU_DEV_SSH__LISTEN, value: "0.0.0.0:2222"}
{{- end }}

{{- define "gpu-dev-server.mounts" -}}
- {name: configuration, mountPath: /configuration, readOnly: true}
- {name: tmp, mountPath: /tmp}
- {name: settings, mountPath: /secrets/settings, readOnly: true}
{{- end }}

{{/* Settings that are files: (list . databaseSecret "more sources") */}}
{{- define "gpu-dev-server.settingsVolume" -}}
{{- $secret := index . 1 }}{{ $more := index . 2 }}
{{- with index . 0 -}}
- name: settings
  projected:
    defaultMode: 0444
    sources:
      - secret:
          name: {{ $secret }}
          {{- if eq (include "gpu-dev-server.database" .) "external" }}
          items: [{key: {{ .Values.externalDatabase.existingSecretKey }}, path: gpu_dev_database_url}]
          {{- else }}
          items: [{key: password, path: gpu_dev_database_password}]
          {{- end }}
      {{- with include "gpu-dev-server.databaseCa" . }}
      - secret:
          name: {{ . }}
          {{- if include "gpu-dev-server.postgresTls" (index $ 0) }}
          # The migration that goes before the first upgrade with it does without.
          optional: true
          {{- end }}
          items: [{key: ca.crt, path: database-ca.crt}]
      {{- end }}
      {{- with include "gpu-dev-server.sealSecret" . }}
      - secret:
          name: {{ . }}
          # The migration that goes before the first upgrade with it does without.
          optional: true
          items: [{key: keys, path: seal-keys}]
      {{- end }}
      {{- with .Values.settingsSecret }}
      - secret: {name: {{ . }}}
      {{- end }}
      {{- with $more }}
      {{- . | nindent 6 }}
      {{- end }}
{{- end }}
{{- end }}

{{- define "gpu-dev-server.volumes" -}}
{{ include "gpu-dev-server.plainVolumes" . }}
{{ include "gpu-dev-server.settingsVolume" (list . (include "gpu-dev-server.databaseSecret" .) "") }}
{{- end }}

{{- define "gpu-dev-server.plainVolumes" -}}
- name: configuration
  configMap: {name: {{ .Values.global.prefix }}-configuration}
- name: tmp
  emptyDir: {sizeLimit: 256Mi}
{{- end }}

{{/* A value as text; Helm writes large whole numbers as 1e+06, which only some programs read. Before Helm 3.10 `and` asks
     for all of its parts, whatever the first says, and a word can't be compared with a number. */}}
{{- define "gpu-dev-server.said" -}}
{{- if kindIs "float64" . }}
{{- if eq (floor .) . }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- else }}{{ . }}{{ end }}
{{- end }}

{{/* Nothing of a new version runs before the database is as far: (list . image pullPolicy) */}}
{{- define "gpu-dev-server.waits" -}}
{{- $root := index . 0 }}
- name: wait-for-migration
  image: {{ index . 1 | quote }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  command: [python, -m, reservation_core.runtime.database, wait, --patience={{ $root.Values.migration.patienceSeconds }}]
  {{- include "gpu-dev-server.migrationEnv" $root | nindent 2 }}
  resources: {{- toYaml $root.Values.migration.resources | nindent 4 }}
  securityContext: {{- include "gpu-dev.containerSecurity" $root | nindent 4 }}
  volumeMounts:
    - {name: settings, mountPath: /secrets/settings, readOnly: true}
{{- end }}

{{/* What answers on 8081 whether a program without an API is well. */}}
{{- define "gpu-dev-server.health" -}}
ports:
  - {name: health, containerPort: 8081}
{{ include "gpu-dev-server.healthProbes" . }}
{{- end }}

{{- define "gpu-dev-server.healthProbes" -}}
# It may wait for the database first.
startupProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 60
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 10
  timeoutSeconds: 5
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 6
{{- end }}

{{/* Pods begin anew when what they read has changed. */}}
{{- define "gpu-dev-server.checksum" -}}
checksum/configuration: {{ include "gpu-dev-server.configuration" . | sha256sum }}
{{- include "gpu-dev-server.databaseChecksum" . }}
{{- end }}

{{- define "gpu-dev-server.apiChecksum" -}}
{{ include "gpu-dev-server.checksum" . }}
{{- with include "gpu-dev-server.apiConfiguration" . }}
checksum/api-configuration: {{ . | sha256sum }}
{{- end }}
{{- end }}

{{- define "gpu-dev-server.configuration" -}}
{{- $defaults := include "gpu-dev-server.withCloud" (list . "workloads" "podDefaults") | fromYaml }}
{{- if and .Values.priorityClasses.create (not (hasKey $defaults "priorityClassName")) }}
{{- $_ := set $defaults "priorityClassName" (printf "%s-jobs" .Values.global.prefix) }}
{{- end }}
pod-defaults.yaml: |
{{- toYaml $defaults | nindent 2 }}
{{- end }}

{{/* What the API alone reads; empty: nothing. */}}
{{- define "gpu-dev-server.apiConfiguration" -}}
{{- with include "gpu-dev-server.signInFile" . }}
sign-in.toml: |
{{- . | nindent 2 }}
{{- end }}
{{- with .Values.apiService.policy }}
policy.toml: |
{{- . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "gpu-dev-server.nodeAgentEnv" -}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- {name: NVIDIA_VISIBLE_DEVICES, value: all}
- {name: NVIDIA_DRIVER_CAPABILITIES, value: utility}
{{- if not (hasKey .Values.nodeAgent.settings "GPU_DEV_SAMPLES_LISTEN") }}
- {name: GPU_DEV_SAMPLES_LISTEN, value: "0.0.0.0:9404"}
{{- end }}
{{- range $name, $value := .Values.nodeAgent.settings }}
- {name: {{ $name }}, value: {{ include "gpu-dev-server.said" $value | quote }}}
{{- end }}
{{- end }}
