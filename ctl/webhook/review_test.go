package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/ctl/inject"
)

func question(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("testdata/review.json")
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// answered sends a question and decodes the response.
func answered(t *testing.T, question string) (*response, Verdict) {
	t.Helper()
	answer, verdict, err := Answer([]byte(question), inject.Default("registry.example/retryproxy:1.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	var r review
	if err := json.Unmarshal(answer, &r); err != nil {
		t.Fatal(err)
	}
	if r.Kind != "AdmissionReview" || r.APIVersion != "admission.k8s.io/v1" || r.Request != nil || r.Response.UID != "705ab4f5-6393-11e8-b7cc-42010a800002" {
		t.Fatalf("the response is not one to the question: %s", answer)
	}
	return r.Response, verdict
}

// objectOf returns the Pod of a question.
func objectOf(t *testing.T, question string) map[string]any {
	t.Helper()
	var r review
	if err := json.Unmarshal([]byte(question), &r); err != nil {
		t.Fatal(err)
	}
	pod, err := decodePod(r.Request.Object)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func at(v any, path ...any) any {
	for _, step := range path {
		switch s := step.(type) {
		case string:
			v = v.(map[string]any)[s]
		case int:
			v = v.([]any)[s]
		}
	}
	return v
}

func TestPodIsInjected(t *testing.T) {
	q := question(t)
	res, verdict := answered(t, q)
	if !res.Allowed || res.PatchType != "JSONPatch" || !verdict.Injected || verdict.Namespace != "shop" || verdict.Name != "web-5d4f8c7b9-*" {
		t.Fatalf("%+v %+v", res, verdict)
	}
	pod := patched(t, objectOf(t, q), res.Patch)
	for want, got := range map[string]any{
		"retryproxy-out":   at(pod, "spec", "initContainers", 0, "name"),
		"retryproxy-in":    at(pod, "spec", "initContainers", 1, "name"),
		"inbound,outbound": at(pod, "metadata", "annotations", "retryproxy.io/injected"),
		"x":                at(pod, "metadata", "annotations", "a~b/c"),
		"http://127.0.0.1:18180/v1?&x=\U0001F600": at(pod, "spec", "containers", 0, "env", 0, "value"),
	} {
		if got != want {
			t.Errorf("%v, want %q", got, want)
		}
	}
	for want, got := range map[json.Number]any{
		"18080": at(pod, "spec", "containers", 0, "ports", 0, "containerPort"),
		"8080":  at(pod, "spec", "containers", 0, "readinessProbe", "httpGet", "port"),
		"40":    at(pod, "spec", "terminationGracePeriodSeconds"),
		"420":   at(pod, "spec", "volumes", 0, "projected", "defaultMode"),
	} {
		if got != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
	if env := fmt.Sprint(at(pod, "spec", "initContainers", 1, "env")); !strings.Contains(env, "RETRYPROXY_MAX_RETRIES value:5") {
		t.Error("the setting of the annotation is not there:", env)
	}

	// An injected Pod is admitted unchanged.
	again, _ := json.Marshal(pod)
	r := strings.Replace(q, q[strings.Index(q, `"object": {`):strings.Index(q, `"oldObject"`)], `"object": `+string(again)+",\n", 1)
	if res, verdict := answered(t, r); !res.Allowed || res.Patch != nil || verdict.Injected {
		t.Errorf("injected again: %s", res.Patch)
	}
}

func TestOthersAreAdmittedAsTheyAre(t *testing.T) {
	for name, change := range map[string][2]string{
		"no annotation":    {`"retryproxy.io/inject": "true", `, ""},
		"not wanted":       {`"retryproxy.io/inject": "true"`, `"retryproxy.io/inject": "false"`},
		"another kind":     {`"kind": {"group": "", "version": "v1", "kind": "Pod"}`, `"kind": {"group": "", "version": "v1", "kind": "PodTemplate"}`},
		"another group":    {`"kind": {"group": "", "version": "v1", "kind": "Pod"}`, `"kind": {"group": "x", "version": "v1", "kind": "Pod"}`},
		"an update":        {`"operation": "CREATE"`, `"operation": "UPDATE"`},
		"a Pod that is no": {`"operation": "CREATE"`, `"operation": "DELETE"`},
	} {
		q := strings.Replace(question(t), change[0], change[1], 1)
		if q == question(t) {
			t.Fatalf("%s: nothing changed", name)
		}
		if res, verdict := answered(t, q); !res.Allowed || res.Patch != nil || res.PatchType != "" || verdict.Injected || verdict.Denial != "" {
			t.Errorf("%s: %+v", name, res)
		}
	}
}

func TestWhatCannotBeDoneIsRefusedWithTheReason(t *testing.T) {
	for name, tt := range map[string]struct{ old, new, want string }{
		"port without a name":   {`"name": "http", "containerPort"`, `"containerPort"`, "port 8080 has no name"},
		"misspelt setting":      {"env.retryproxy.io/MAX_RETRIES", "env.retryproxy.io/MAX_RETRYS", "the configuration is not valid: RETRYPROXY_MAX_RETRYS"},
		"misspelt annotation":   {"retryproxy.io/inbound", "retryproxy.io/inbuond", "inbuond: unknown; did you mean retryproxy.io/inbound?"},
		"unclear wish":          {`"retryproxy.io/inject": "true"`, `"retryproxy.io/inject": "yes"`, `expected "true" or "false"`},
		"variable from a field": {`"value": "https://api.example.com`, `"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}, "x": "`, "valueFrom"},
		"host network":          {`"restartPolicy": "Always",`, `"hostNetwork": true,`, "hostNetwork"},
	} {
		q := strings.Replace(question(t), tt.old, tt.new, 1)
		res, verdict := answered(t, q)
		if res.Allowed || res.Patch != nil || res.Status == nil || res.Status.Code != 422 || !strings.Contains(res.Status.Message, tt.want) || strings.Contains(res.Status.Message, "\n") || verdict.Denial == "" {
			t.Errorf("%s: %+v %+v", name, res, res.Status)
		}
	}
}

func TestWhatIsNoQuestionIsAnError(t *testing.T) {
	for _, body := range []string{
		"", "x", "{}", "[]", `{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}`,
		strings.Replace(question(t), "admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1),
		strings.Replace(question(t), "705ab4f5-6393-11e8-b7cc-42010a800002", "", 1),
	} {
		if answer, _, err := Answer([]byte(body), inject.Default("i:1")); !errors.Is(err, errReview) {
			t.Errorf("%.40q: %s, %v", body, answer, err)
		}
	}
}

// patched applies a JSON patch, as far as diff uses it.
func patched(t *testing.T, object map[string]any, patch []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(patch)))
	d.UseNumber()
	var operations []struct {
		Op, Path string
		Value    any
	}
	if err := d.Decode(&operations); err != nil {
		t.Fatal(err)
	}
	for _, o := range operations {
		steps := strings.Split(o.Path, "/")[1:]
		parent := object
		for i, s := range steps {
			s = strings.NewReplacer("~1", "/", "~0", "~").Replace(s)
			if i < len(steps)-1 {
				parent = parent[s].(map[string]any)
				continue
			}
			if o.Op != "add" {
				t.Fatalf("%s %s", o.Op, o.Path)
			}
			parent[s] = o.Value
		}
	}
	return object
}

// The patch of two objects turns one into the other.
func TestPatchLeadsFromOneToTheOther(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		from := randomMap(r, 3)
		to := extended(r, from)
		patch, err := json.Marshal(diff("", from, to))
		if err != nil {
			t.Fatal(err)
		}
		before, _ := json.Marshal(from)
		var copied map[string]any
		d := json.NewDecoder(strings.NewReader(string(before)))
		d.UseNumber()
		if err := d.Decode(&copied); err != nil {
			t.Fatal(err)
		}
		if got := patched(t, copied, patch); !reflect.DeepEqual(got, to) {
			t.Fatalf("%s from %s gives %v, want %v", patch, before, got, to)
		}
	}
}

// extended returns an object with all keys of another, and more.
func extended(r *rand.Rand, object map[string]any) map[string]any {
	to := randomMap(r, 2)
	for key, value := range object {
		inner, is := value.(map[string]any)
		switch {
		case is:
			to[key] = extended(r, inner)
		case r.IntN(2) == 0:
			to[key] = value
		default:
			to[key] = randomValue(r, 2)
		}
	}
	return to
}

func randomMap(r *rand.Rand, depth int) map[string]any {
	m := map[string]any{}
	for range r.IntN(4) {
		m[[]string{"a", "b", "a/b~", "~1", ""}[r.IntN(5)]] = randomValue(r, depth-1)
	}
	return m
}

func randomValue(r *rand.Rand, depth int) any {
	switch n := r.IntN(7); {
	case n == 0 && depth > 0:
		return randomMap(r, depth)
	case n == 1 && depth > 0:
		list := make([]any, r.IntN(3))
		for i := range list {
			list[i] = randomValue(r, depth-1)
		}
		return list
	case n == 2:
		return json.Number(strconv.Itoa(r.IntN(3)))
	case n == 3:
		return r.IntN(2) == 0
	case n == 4:
		return nil
	case n == 5:
		return ""
	}
	return []string{"x", "y"}[r.IntN(2)]
}
