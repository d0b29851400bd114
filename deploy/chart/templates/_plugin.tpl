{{- /* Root, since kubelet's sockets are root's, but without one of root's capabilities. */ -}}
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
