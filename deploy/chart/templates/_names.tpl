{{- /* The names of all objects, as a map. Without nameOverride they are those of the original and of deploy/. */ -}}
{{- define "gas.names" -}}
{{- $override := .Values.nameOverride -}}
{{- $names := dict
  "app" "gas"
  "extender" "gpu-aware-scheduling"
  "service" "gas-service"
  "admission" "gas-admission"
  "binding" "gas-binding"
  "explanations" "gas-explanations"
  "extenderAccount" "gpu-aware-scheduling-service-account"
  "extenderRole" "gas-handler"
  "extenderBinding" "handle-gas"
  "leader" "gas-leader"
  "lease" "gas-extender"
  "secret" "extender-secret"
  "clientSecret" "gas-scheduler-client"
  "authority" "gas-authority"
  "certificates" "gas-certificates"
  "plugin" "gas-plugin"
  "scheduler" "gas-scheduler"
  "extenderMonitor" "gas-extender"
  "rules" "gas"
  "dashboard" "gas-dashboard"
-}}
{{- if $override -}}
{{- $names = dict
  "app" $override
  "extender" (printf "%s-extender" $override)
  "service" (printf "%s-service" $override)
  "admission" (printf "%s-admission" $override)
  "binding" (printf "%s-binding" $override)
  "explanations" (printf "%s-explanations" $override)
  "extenderAccount" (printf "%s-extender" $override)
  "extenderRole" (printf "%s-extender" $override)
  "extenderBinding" (printf "%s-extender" $override)
  "leader" (printf "%s-leader" $override)
  "lease" (printf "%s-extender" $override)
  "secret" (printf "%s-extender-secret" $override)
  "clientSecret" (printf "%s-scheduler-client" $override)
  "authority" (printf "%s-authority" $override)
  "certificates" (printf "%s-certificates" $override)
  "plugin" (printf "%s-plugin" $override)
  "scheduler" (printf "%s-scheduler" $override)
  "extenderMonitor" (printf "%s-extender" $override)
  "rules" $override
  "dashboard" (printf "%s-dashboard" $override)
-}}
{{- end -}}
{{- $_ := set $names "pluginAccount" (.Values.plugin.serviceAccount.name | default $names.plugin) -}}
{{- $_ := set $names "schedulerAccount" (.Values.scheduler.serviceAccount.name | default $names.scheduler) -}}
{{- $_ := set $names "extenderAccount" (.Values.extender.serviceAccount.name | default $names.extenderAccount) -}}
{{- $_ := set $names "secret" (.Values.certificates.secretName | default $names.secret) -}}
{{- $_ := set $names "clientSecret" (.Values.certificates.clientSecretName | default $names.clientSecret) -}}
{{- $_ := set $names "authority" (.Values.certificates.authoritySecretName | default $names.authority) -}}
{{- $names | toJson -}}
{{- end -}}

{{- /* The host name by which kube-scheduler calls the extender. */ -}}
{{- define "gas.host" -}}
{{- $names := include "gas.names" . | fromJson -}}
{{- printf "%s.%s.svc.%s" $names.service .Release.Namespace .Values.clusterDomain -}}
{{- end -}}

{{- define "gas.url" -}}
{{- printf "https://%s:%d" (include "gas.host" .) (int .Values.extender.service.port) -}}
{{- end -}}

{{- /* The host names by which the API server calls the admission webhooks, as a JSON list; empty without them. */ -}}
{{- define "gas.webhookNames" -}}
{{- $names := include "gas.names" . | fromJson -}}
{{- $found := list -}}
{{- if .Values.admission.enabled -}}
{{- range list $names.admission $names.binding -}}
{{- $found = append $found (printf "%s.%s.svc" . $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{- /* The names in the extender's certificate, separated by commas; first the one that kube-scheduler calls. */ -}}
{{- define "gas.servingNames" -}}
{{- $names := include "gas.names" . | fromJson -}}
{{- $service := printf "%s.%s" $names.service .Release.Namespace -}}
{{- concat (list (include "gas.host" .) (printf "%s.svc" $service) $service $names.service "localhost" "127.0.0.1") (include "gas.webhookNames" . | fromJsonArray) .Values.certificates.extraNames | uniq | join "," -}}
{{- end -}}
