{{- /* The second scheduler's version: the tag of its image, or the cluster's version without vendor suffixes. */ -}}
{{- define "gas.schedulerTag" -}}
{{- .Values.scheduler.image.tag | default (include "gas.clusterRelease" .) -}}
{{- end -}}

{{- /* The version of the configuration API that this scheduler reads. */ -}}
{{- define "gas.schedulerApiVersion" -}}
{{- $release := regexFind "[0-9]+[.][0-9]+[.][0-9]+" (include "gas.schedulerTag" .) | default "1.25.0" -}}
{{- $version := "v1" -}}
{{- if semverCompare "<1.23.0-0" $release }}{{ $version = "v1beta2" }}
{{- else if semverCompare "<1.25.0-0" $release }}{{ $version = "v1beta3" }}{{ end -}}
{{- printf "kubescheduler.config.k8s.io/%s" $version -}}
{{- end -}}

{{- /* Whether the extender serves preempt: it does, unless extender.flags.preemption is false. */ -}}
{{- define "gas.isOn" -}}
{{- if hasKey .root.Values.extender.flags .flag }}{{ get .root.Values.extender.flags .flag }}{{ else }}{{ has .flag (list "preemption") }}{{ end -}}
{{- end -}}

{{- /* The resources of the extender's vocabularies: kube-scheduler asks the extender about pods that request one. */ -}}
{{- define "gas.managedResources" -}}
{{- $known := .Files.Get "files/managed-resources.json" | fromJson -}}
{{- $managed := list -}}
{{- range get .Values.extender.flags "vocabularies" | default (list "intel") -}}
{{- $managed = concat $managed (get $known .) -}}
{{- end -}}
{{- $managed | uniq | toJson -}}
{{- end -}}

{{- define "gas.schedulerConfiguration" -}}
{{- $names := include "gas.names" . | fromJson -}}
{{- $scheduler := .Values.scheduler -}}
{{- $managed := include "gas.managedResources" . | fromJsonArray -}}
{{- $ours := dict
  "urlPrefix" (include "gas.url" .)
  "filterVerb" "scheduler/filter"
  "bindVerb" "scheduler/bind"
  "weight" 1
  "enableHTTPS" true
  "managedResources" $managed
  "ignorable" false
  "nodeCacheCapable" true
  "tlsConfig" (dict "insecure" false "certFile" "/gas/client/tls.crt" "keyFile" "/gas/client/tls.key" "caFile" "/gas/client/ca.crt")
-}}
{{- if eq (include "gas.isOn" (dict "root" . "flag" "preemption")) "true" }}{{ $_ := set $ours "preemptVerb" "scheduler/preempt" }}{{ end -}}
{{- if ne (get .Values.extender.flags "node-score" | default "balance") "none" -}}
{{- $_ := set $ours "prioritizeVerb" "scheduler/prioritize" -}}
{{- end -}}
{{- $configuration := dict
  "leaderElection" (dict "leaderElect" true "resourceName" $names.scheduler "resourceNamespace" .Release.Namespace)
-}}
{{- $configuration = mergeOverwrite $configuration (deepCopy $scheduler.configuration) -}}
{{- $fixed := dict
  "apiVersion" (include "gas.schedulerApiVersion" .)
  "kind" "KubeSchedulerConfiguration"
  "profiles" (list (mergeOverwrite (deepCopy $scheduler.profile) (dict "schedulerName" $scheduler.name)))
  "extenders" (append $scheduler.extraExtenders $ours)
-}}
{{- mergeOverwrite $configuration $fixed | toYaml -}}
{{- end -}}
