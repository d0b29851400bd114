{{- /* Name, namespace, labels and annotations of an object: (dict "root" $ "component" "extender" "name" NAME "labels" MORE "annotations" MORE). "ofCluster" true leaves out the namespace. */ -}}
{{- define "gas.metadata" -}}
{{- $root := .root -}}
name: {{ .name }}
{{- if not .ofCluster }}
namespace: {{ $root.Release.Namespace }}
{{- end }}
labels:
{{- $labels := include "gas.labels" . | fromYaml }}
{{- toYaml (mergeOverwrite $labels (deepCopy $root.Values.labels) (deepCopy (.labels | default dict))) | nindent 2 }}
{{- with mergeOverwrite (deepCopy $root.Values.annotations) (deepCopy (.annotations | default dict)) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "gas.labels" -}}
{{ include "gas.podLabels" . }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* Labels that do not change between releases of the chart, so that they cause no replacement of pods. */ -}}
{{- define "gas.podLabels" -}}
app.kubernetes.io/name: gas
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- /* The reference of an image: (dict "image" VALUES "tag" DEFAULT). */ -}}
{{- define "gas.image" -}}
{{- with .image.registry }}{{ . }}/{{ end -}}
{{- .image.repository -}}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .tag }}{{ end -}}
{{- end -}}

{{- /* The label of nodes that can run the image; nothing for an image that every node can run. */ -}}
{{- define "gas.platform" -}}
{{- with .Values.image.architecture -}}
kubernetes.io/arch: {{ . }}
{{- end -}}
{{- end -}}

{{- define "gas.pullSecrets" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- /* Flags as a JSON list of arguments: numbers without exponent, lists with commas. */ -}}
{{- define "gas.flags" -}}
{{- $arguments := list -}}
{{- range $name, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $text := toString $value -}}
{{- if kindIs "slice" $value -}}
{{- $text = join "," $value -}}
{{- else if kindIs "float64" $value -}}
{{- if eq (floor $value) $value -}}{{- $text = toString (int64 $value) -}}{{- end -}}
{{- end -}}
{{- $dashes := ternary "-" "--" (eq (len $name) 1) -}}
{{- $arguments = append $arguments (printf "%s%s=%s" $dashes $name $text) -}}
{{- end -}}
{{- end -}}
{{- $arguments | toJson -}}
{{- end -}}

{{- define "gas.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "gas.apart" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            app: {{ . }}
{{- end -}}
