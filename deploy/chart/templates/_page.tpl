{{- /* The container of the page, in the extender's pod. */ -}}
{{- define "gas.page.container" -}}
name: page
image: {{ include "gas.image" (dict "image" .Values.image "tag" .Chart.AppVersion) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command: [gas-page]
args:
  - --page-port={{ .Values.page.port }}
  - --extender=http://127.0.0.1:{{ .Values.extender.metricsPort }}
  {{- with .Values.page.hosts }}
  - --page-hosts={{ join "," . }}
  {{- end }}
  {{- with .Values.page.grafana }}
  - --page-grafana={{ . }}
  {{- end }}
{{- with .Values.extender.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.page.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "gas.restricted" . | nindent 2 }}
{{- end -}}
