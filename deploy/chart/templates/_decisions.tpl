{{- /* Settings that follow from several values, and combinations of values that are refused. */ -}}
{{- define "gas.certificateSource" -}}
{{- .Values.certificates.source | default (ternary "job" "secret" .Values.scheduler.enabled) -}}
{{- end -}}

{{- define "gas.extenderNodes" -}}
{{- .Values.extender.nodes | default (ternary "any" "control-plane" .Values.scheduler.enabled) -}}
{{- end -}}

{{- define "gas.writeNode" -}}
{{- get .Values.plugin.flags "write-node" | default "patch" -}}
{{- end -}}

{{- /* Not empty if the plugin calls the API server. */ -}}
{{- define "gas.pluginCallsApi" -}}
{{- $flag := get .Values.plugin.flags "resource-manager" -}}
{{- if or .Values.plugin.cleanUp (not (kindIs "bool" $flag)) $flag }}yes{{ end -}}
{{- end -}}

{{- /* The cluster's version as three numbers, without vendor suffixes: `--kube-version=1.34` gives v1.34.0. */ -}}
{{- define "gas.clusterRelease" -}}
{{- $found := regexFind "^v?[0-9]+[.][0-9]+([.][0-9]+)?" .Capabilities.KubeVersion.Version -}}
{{- regexMatch "[.].*[.]" $found | ternary $found (printf "%s.0" $found) -}}
{{- end -}}

{{- /* Not empty if the cluster is older than a release of Kubernetes: (dict "root" $ "release" "1.30"). */ -}}
{{- define "gas.isBefore" -}}
{{- if semverCompare (printf "<%s.0-0" .release) (include "gas.clusterRelease" .root) }}yes{{ end -}}
{{- end -}}

{{- /* Refuse values that are set although what they belong to is off: (dict "values" VALUES "part" NAME "needs" SETTING).
Only for what someone would miss: a values file may also hold settings of parts that this cluster does without. */ -}}
{{- define "gas.refuseUnused" -}}
{{- $part := .part -}}
{{- $set := list -}}
{{- range $name, $value := .values -}}
{{- if $value }}{{ $set = append $set (printf "%s.%s" $part $name) }}{{ end -}}
{{- end -}}
{{- if $set -}}
{{- fail (printf "%s: no effect without %s: set that too, or leave out what has no effect" (join ", " $set) .needs) -}}
{{- end -}}
{{- end -}}

{{- define "gas.refuse" -}}
{{- $values := .Values -}}
{{- if not (or $values.extender.enabled $values.plugin.enabled) -}}
{{- fail "neither extender.enabled nor plugin.enabled is true: there is nothing to install" -}}
{{- end -}}
{{- if and $values.scheduler.enabled (not $values.extender.enabled) -}}
{{- fail "scheduler.enabled is true, but extender.enabled is false: the second scheduler needs the extender" -}}
{{- end -}}
{{- if and $values.scheduler.enabled (eq $values.scheduler.name "default-scheduler") -}}
{{- fail "scheduler.name is default-scheduler, the name of the cluster's own scheduler: two schedulers would place the same pods" -}}
{{- end -}}
{{- if and (ne $values.scheduler.otherGPUPods "allow") (not $values.scheduler.enabled) -}}
{{- fail (printf "scheduler.otherGPUPods is %s, but scheduler.enabled is false: no scheduler would place GPU pods" $values.scheduler.otherGPUPods) -}}
{{- end -}}
{{- if not $values.admission.enabled -}}
{{- include "gas.refuseUnused" (dict "values" (omit $values.admission "port" "timeoutSeconds") "part" "admission" "needs" "admission.enabled=true") -}}
{{- end -}}
{{- if eq (include "gas.certificateSource" .) "secret" -}}
{{- include "gas.refuseUnused" (dict "values" (pick $values.certificates "extraNames") "part" "certificates" "needs" "certificates.source=job or cert-manager") -}}
{{- end -}}
{{- if not $values.page.enabled -}}
{{- include "gas.refuseUnused" (dict "values" (pick $values.page "use" "hosts" "grafana") "part" "page" "needs" "page.enabled=true") -}}
{{- end -}}
{{- if not $values.plugin.enabled -}}
{{- include "gas.refuseUnused" (dict "values" (pick $values.plugin "cleanUp") "part" "plugin" "needs" "plugin.enabled=true") -}}
{{- include "gas.refuseUnused" (dict "values" (pick $values.plugin.nvidia "enabled") "part" "plugin.nvidia" "needs" "plugin.enabled=true") -}}
{{- end -}}
{{- if and (get $values.plugin.flags "allow-ids") (get $values.plugin.flags "deny-ids") -}}
{{- fail "plugin.flags.allow-ids and plugin.flags.deny-ids exclude each other: set one of them" -}}
{{- end -}}
{{- if and $values.extender.enabled $values.plugin.enabled -}}
{{- range $flag, $default := dict "vocabularies" (list "intel") "aliyun-unit" "MiB" -}}
{{- $decided := get $values.extender.flags $flag | default $default -}}
{{- $offered := get $values.plugin.flags $flag | default $default -}}
{{- if ne (toJson $decided) (toJson $offered) -}}
{{- fail (printf "extender.flags.%s is %s, but plugin.flags.%s is %s: set the same for both" $flag (toJson $decided) $flag (toJson $offered)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $values.certificates.clusterAuthority (ne (include "gas.certificateSource" .) "secret") -}}
{{- fail (printf "certificates.clusterAuthority needs certificates.source=secret, found %s: the chart cannot sign with the cluster CA" (include "gas.certificateSource" .)) -}}
{{- end -}}
{{- $names := include "gas.names" . | fromJson -}}
{{- if ne (include "gas.certificateSource" .) "secret" -}}
{{- $secrets := list $names.secret $names.clientSecret $names.authority -}}
{{- if ne (len ($secrets | uniq)) 3 -}}
{{- fail (printf "certificates.secretName, clientSecretName and authoritySecretName must be three different names, found %s: a pod that mounts the CA's key could sign certificates" (join ", " $secrets)) -}}
{{- end -}}
{{- end -}}
{{- range $component, $account := dict "extender" $names.extenderAccount "scheduler" $names.schedulerAccount -}}
{{- if and $values.plugin.enabled (get $values $component).enabled (eq $account $names.pluginAccount) -}}
{{- fail (printf "%s.serviceAccount.name and plugin.serviceAccount.name are both %s: the plugin on every node would have the permissions of the %s" $component $account $component) -}}
{{- end -}}
{{- end -}}
{{- if and $values.extender.enabled (eq (int $values.extender.port) (int $values.extender.metricsPort)) -}}
{{- fail (printf "extender.port and extender.metricsPort are both %d: they must be two different ports" (int $values.extender.port)) -}}
{{- end -}}
{{- $admission := $values.admission -}}
{{- if and $admission.enabled (not $values.extender.enabled) -}}
{{- fail "admission.enabled is true, but extender.enabled is false: the extender serves the webhooks" -}}
{{- end -}}
{{- if and $admission.enabled (has (int $admission.port) (list (int $values.extender.port) (int $values.extender.metricsPort))) -}}
{{- fail (printf "admission.port is %d, which is extender.port or extender.metricsPort: choose another" (int $admission.port)) -}}
{{- end -}}
{{- if and $values.page.enabled (not $values.extender.enabled) -}}
{{- fail "page.enabled is true, but extender.enabled is false: the page runs in the pod of the extender" -}}
{{- end -}}
{{- if and $values.page.enabled (has (int $values.page.port) (list (int $values.extender.port) (int $values.extender.metricsPort) (ternary (int $admission.port) 0 $admission.enabled))) -}}
{{- fail (printf "page.port is %d, which is a port of the extender: choose another" (int $values.page.port)) -}}
{{- end -}}
{{- if and $admission.enabled (include "gas.isBefore" (dict "root" . "release" "1.29")) -}}
{{- fail (printf "this cluster is %s, but the conditions of the webhooks need Kubernetes 1.29: set admission.enabled=false" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if has "system:kube-scheduler" $admission.strictUsers -}}
{{- fail "admission.strictUsers has system:kube-scheduler, which also binds the extender's own pods: while the extender is away no pod of the cluster would be bound, the extender neither. Name only schedulers of GPU pods" -}}
{{- end -}}
{{- if and $admission.clientCertificate (ne (include "gas.certificateSource" .) "secret") -}}
{{- fail (printf "admission.clientCertificate needs certificates.source=secret, found %s: only gas-configurator --api-server gives the API server a certificate" (include "gas.certificateSource" .)) -}}
{{- end -}}
{{- if include "gas.isBefore" (dict "root" . "release" "1.30") -}}
{{- if and $values.plugin.enabled $values.plugin.admissionPolicy.enabled (include "gas.pluginCallsApi" .) -}}
{{- fail (printf "this cluster is %s, but admission policies need Kubernetes 1.30: set plugin.admissionPolicy.enabled=false. Anyone who obtains a plugin's token can then change every node's status" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if eq $values.scheduler.otherGPUPods "refuse" -}}
{{- fail (printf "this cluster is %s, but admission policies need Kubernetes 1.30: set scheduler.otherGPUPods=allow" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The newest API version in which the cluster serves MutatingAdmissionPolicy. */ -}}
{{- define "gas.mutatingPolicyVersion" -}}
{{- $group := "admissionregistration.k8s.io" -}}
{{- $found := "" -}}
{{- range $version := list "v1alpha1" "v1beta1" "v1" -}}
{{- if $.Capabilities.APIVersions.Has (printf "%s/%s/MutatingAdmissionPolicy" $group $version) -}}
{{- $found = printf "%s/%s" $group $version -}}
{{- end -}}
{{- end -}}
{{- $found | required "scheduler.otherGPUPods is send, but the API server does not serve MutatingAdmissionPolicy: use Kubernetes 1.36 or later, enable its feature gate and its API, or use refuse or allow" -}}
{{- end -}}
