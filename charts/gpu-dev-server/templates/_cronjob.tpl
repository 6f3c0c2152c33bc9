{{/* A program that looks once a minute: (list . name values module "availabilityUpdater") */}}
{{- define "gpu-dev-server.looking" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $values := index . 2 }}{{ $module := index . 3 }}
{{- /* It waits for the database and its migration as other pods do. */}}
{{- $patience := dict "GPU_DEV_DATABASE_WAIT_S" (min 3600 (int $root.Values.migration.patienceSeconds)) }}
{{- $settings := merge (dict) $values.settings $root.Values.settings $patience -}}
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {{ $name }}
  namespace: {{ include "gpu-dev-server.cp" $root }}
  labels: {{- include "gpu-dev-server.labels" (list $root $name) | nindent 4 }}
spec:
  schedule: {{ $values.schedule | quote }}
  # A missed run is made up by the next.
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: 60
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 3
  jobTemplate:
    spec:
      backoffLimit: 0
      activeDeadlineSeconds: {{ add 300 (int $settings.GPU_DEV_DATABASE_WAIT_S) }}
      ttlSecondsAfterFinished: 3600
      template:
        metadata:
          labels: {{- include "gpu-dev-server.podLabels" (list $root $name) | nindent 12 }}
        spec:
          restartPolicy: Never
          serviceAccountName: {{ $name }}
          securityContext: {{- include "gpu-dev.podSecurity" $root | nindent 12 }}
          {{- include "gpu-dev-server.placing" (list $root $name $values 1) | nindent 10 }}
          containers:
            - name: {{ $name }}
              image: {{ include "gpu-dev-server.image" (list $root $values.image) | quote }}
              imagePullPolicy: {{ $root.Values.image.pullPolicy }}
              command: [python, -m, {{ $module }}]
              {{- include "gpu-dev.env" (list (include "gpu-dev-server.env" (list $root $settings)) $values.extraEnv (printf "%s.extraEnv" (index . 4))) | nindent 14 }}
              resources: {{- toYaml $values.resources | nindent 16 }}
              securityContext: {{- include "gpu-dev.containerSecurity" $root | nindent 16 }}
              volumeMounts: {{- include "gpu-dev-server.mounts" $root | nindent 16 }}
          volumes: {{- include "gpu-dev-server.volumes" $root | nindent 12 }}
{{- end }}
