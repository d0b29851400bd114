{{- /* Root, because kubelet's sockets belong to root, but without any capability. */ -}}
{{- define "gas.plugin.securityContext" -}}
runAsUser: 0
runAsGroup: 0
{{ include "gas.restricted" . }}
seccompProfile:
  type: RuntimeDefault
{{- with .Values.plugin.seLinuxOptions }}
seLinuxOptions:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
