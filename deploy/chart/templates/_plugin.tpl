{{- /* Root, because kubelet's sockets belong to root, but without any capability unless it opens render nodes or reads processes. */ -}}
{{- define "gas.plugin.securityContext" -}}
runAsUser: 0
runAsGroup: 0
{{- if .Values.plugin.openRenderNodes }}
privileged: true
readOnlyRootFilesystem: true
{{- else }}
{{ include "gas.restricted" . }}
{{- if .Values.plugin.flags.usage }}
  add: [SYS_PTRACE]
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- with .Values.plugin.seLinuxOptions }}
seLinuxOptions:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}
