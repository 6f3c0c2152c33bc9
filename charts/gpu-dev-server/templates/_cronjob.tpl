{{/* A program that looks once a minute: (list . name values module "availabilityUpdater") */}}
{{- define "gpu-dev-server.looking" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $values := index . 2 }}{{ $module := index . 3 -}}
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
      activeDeadlineSeconds: 300
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
              {{- include "gpu-dev.env" (list (include "gpu-dev-server.env" (list $root $values.settings)) $values.extraEnv (printf "%s.extraEnv" (index . 4))) | nindent 14 }}
              resources: {{- toYaml $values.resources | nindent 16 }}
              securityContext: {{- include "gpu-dev.containerSecurity" $root | nindent 16 }}
              volumeMounts: {{- include "gpu-dev-server.mounts" $root | nindent 16 }}
          volumes: {{- include "gpu-dev-server.volumes" $root | nindent 12 }}
{{- end }}
