{{- define "gas.certificatesPod" -}}
{{- $names := include "gas.names" . | fromJson -}}
metadata:
  labels:
    app: {{ $names.certificates }}
    {{- include "gas.podLabels" (dict "component" "certificates") | nindent 4 }}
spec:
  serviceAccountName: {{ $names.certificates }}
  enableServiceLinks: false
  restartPolicy: OnFailure
  {{- with include "gas.pullSecrets" . }}{{ nindent 2 . }}{{ end }}
  securityContext:
    runAsNonRoot: true
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: certificates
      image: {{ include "gas.image" (dict "image" .Values.image "tag" .Chart.AppVersion) }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      command: [/opt/gas/bin/python, -m, configurator.cluster_certificates]
      args:
        - --namespace={{ .Release.Namespace }}
        - --authority={{ $names.authority }}
        - --serving={{ $names.secret }}
        - --client={{ $names.clientSecret }}
        - --names={{ include "gas.servingNames" . }}
        {{- if .Values.admission.enabled }}
        - --webhooks={{ $names.admission }}
        {{- end }}
      resources:
        {{- toYaml .Values.certificates.job.resources | nindent 8 }}
      securityContext:
        {{- include "gas.restricted" . | nindent 8 }}
  {{- $extender := .Values.extender }}
  {{- with mergeOverwrite (include "gas.platform" . | fromYaml) $extender.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- $onControlPlane := eq (include "gas.extenderNodes" .) "control-plane" }}
  {{- if or $onControlPlane $extender.tolerations }}
  tolerations:
    {{- if $onControlPlane }}
    - {key: node-role.kubernetes.io/control-plane, operator: Exists}
    - {key: node-role.kubernetes.io/master, operator: Exists}
    {{- end }}
    {{- with $extender.tolerations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
{{- end -}}
