{{- define "retryproxy.fullname" -}}
{{- .Values.fullnameOverride | default (ternary .Release.Name (printf "%s-retryproxy" .Release.Name) (contains "retryproxy" .Release.Name)) | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "retryproxy.webhook.fullname" -}}
{{ include "retryproxy.fullname" . }}-inject
{{- end }}

{{/* What selects Pods never changes, so versions are not in it. (list ROOT COMPONENT) */}}
{{- define "retryproxy.selector" -}}
app.kubernetes.io/name: retryproxy-{{ index . 1 }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
{{- end }}

{{- define "retryproxy.labels" -}}
{{ include "retryproxy.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ (index . 0).Chart.Name }}-{{ (index . 0).Chart.Version | replace "+" "_" }}
{{- end }}

{{/* (list ROOT IMAGE) */}}
{{- define "retryproxy.image" -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "retryproxy.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "retryproxy.securityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* A setting's value as it stands in the file: numbers come as floats, and large ones would be written with an exponent. */}}
{{- define "retryproxy.setting" -}}
{{- if kindIs "float64" . }}{{ if eq . (floor .) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{/* A duration such as 1m30s or 500ms in whole seconds, rounded up. */}}
{{- define "retryproxy.seconds" -}}
{{- $seconds := dict "h" 3600.0 "m" 60.0 "s" 1.0 "ms" 0.001 "us" 0.000001 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(h|ms|us|m|s)" (toString .) -1 -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- $sum = addf $sum (mulf (trimSuffix $unit . | float64) (get $seconds $unit)) -}}
{{- end -}}
{{ ceil $sum | int64 }}
{{- end }}

{{/* What would only show when it runs, told before anything is installed. */}}
{{- define "retryproxy.checkGateway" -}}
{{- $g := .Values.gateway -}}
{{- if not $g.settings.UPSTREAM -}}
{{- fail "gateway.settings.UPSTREAM: say where requests are sent, such as http://app.default.svc.cluster.local" -}}
{{- end -}}
{{- $delay := include "retryproxy.seconds" ($g.settings.DRAIN_DELAY | default "0s") | int64 -}}
{{- $drain := include "retryproxy.seconds" ($g.settings.DRAIN_TIMEOUT | default "20s") | int64 -}}
{{- $need := add $delay $drain 5 -}}
{{- if gt $need (int64 $g.terminationGracePeriodSeconds) -}}
{{- fail (printf "gateway.terminationGracePeriodSeconds is %d: DRAIN_DELAY (%ds), DRAIN_TIMEOUT (%ds) and 5s for the kubelet need at least %d" (int64 $g.terminationGracePeriodSeconds) $delay $drain $need) -}}
{{- end -}}
{{- if and $g.autoscaling.enabled (gt (int64 $g.autoscaling.minReplicas) (int64 $g.autoscaling.maxReplicas)) -}}
{{- fail (printf "gateway.autoscaling.minReplicas (%d) is more than maxReplicas (%d)" (int64 $g.autoscaling.minReplicas) (int64 $g.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- end }}

{{- define "retryproxy.checkWebhook" -}}
{{- $w := .Values.webhook -}}
{{- if not $w.certificateSecret -}}
{{- fail (printf "webhook.certificateSecret: name the Secret with a certificate for %s.%s.svc" (include "retryproxy.webhook.fullname" .) .Release.Namespace) -}}
{{- end -}}
{{- if eq (empty $w.caBundle) (empty $w.injectCAFrom) -}}
{{- fail "webhook.caBundle or webhook.injectCAFrom: set one of them, else the API server does not believe the webhook and no Pod that asks can be made" -}}
{{- end -}}
{{- if semverCompare "<1.30.0-0" .Capabilities.KubeVersion.Version -}}
{{- fail (printf "webhook.enabled: it needs matchConditions, Kubernetes 1.30; this is %s" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- end }}
