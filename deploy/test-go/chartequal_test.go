package deploytest

import (
	"encoding/json"
	"reflect"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// The chart and the manifests are one thing said twice: what one learns, the
// other has to learn too.
func TestChartMakesWhatTheManifestsAre(t *testing.T) {
	for overlay, r := range map[string]release{
		"gateway":               {name: "retryproxy-gateway", values: upstreamValues},
		"webhook":               {namespace: "retryproxy", values: webhookValues},
		"monitoring/podmonitor": {values: `{gateway: {enabled: false}, podMonitor: {enabled: true}}`},
		"monitoring/rules":      {values: `{gateway: {enabled: false}, prometheusRule: {enabled: true}}`},
	} {
		t.Run(overlay, func(t *testing.T) {
			want, have := substances(t, objects(t, k8s+"/overlays/"+overlay)), substances(t, chartObjects(t, r))
			delete(want, "Namespace retryproxy") // `helm install --create-namespace` makes it
			for name := range have {
				if want[name] == nil {
					t.Errorf("only the chart has %s", name)
				}
			}
			for name, object := range want {
				for _, difference := range differences(name, object, have[name]) {
					t.Error(difference)
				}
			}
		})
	}
}

// substances are the objects as JSON has them, defaults filled in, without
// what Helm or kustomize add and what belongs to a release, by kind and name.
func substances(t *testing.T, all []runtime.Object) map[string]any {
	t.Helper()
	found := map[string]any{}
	for _, object := range all {
		name := nameOf(object)
		legacyscheme.Scheme.Default(object)
		if m, ok := object.(*corev1.ConfigMap); ok {
			m.Data["env"] = text(settingsIn(m.Data["env"]))
		}
		encoded, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(encoded, &fields); err != nil {
			t.Fatal(err)
		}
		metadata := fields["metadata"].(map[string]any)
		for _, key := range []string{"labels", "annotations", "namespace"} {
			delete(metadata, key)
		}
		withoutRelease(fields)
		found[name] = fields
	}
	return found
}

// withoutRelease takes the label that tells one release from another out of
// all labels and selectors.
func withoutRelease(value any) {
	switch v := value.(type) {
	case map[string]any:
		delete(v, "app.kubernetes.io/instance")
		for _, below := range v {
			withoutRelease(below)
		}
	case []any:
		for _, below := range v {
			withoutRelease(below)
		}
	}
}

// differences names the fields in which have is not want.
func differences(at string, want, have any) (found []string) {
	if w, isList := want.([]any); isList {
		if h, both := have.([]any); both && len(w) == len(h) {
			for i := range w {
				found = append(found, differences(at+"."+strconv.Itoa(i), w[i], h[i])...)
			}
			return found
		}
	}
	w, isMap := want.(map[string]any)
	h, both := have.(map[string]any)
	if !isMap || !both {
		if !reflect.DeepEqual(want, have) {
			found = append(found, at+": the chart has "+text(have)+", the manifests have "+text(want))
		}
		return found
	}
	for key := range w {
		found = append(found, differences(at+"."+key, w[key], h[key])...)
	}
	for key := range h {
		if _, ok := w[key]; !ok {
			found = append(found, at+"."+key+": only in the chart, "+text(h[key]))
		}
	}
	return found
}

func text(value any) string {
	encoded, _ := json.Marshal(value)
	return string(encoded)
}
