package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/retryproxy/retryproxy/ctl/inject"
)

// The parts of an AdmissionReview (admission.k8s.io/v1).
type (
	review struct {
		APIVersion string    `json:"apiVersion"`
		Kind       string    `json:"kind"`
		Request    *request  `json:"request,omitempty"`
		Response   *response `json:"response,omitempty"`
	}
	request struct {
		UID       string          `json:"uid"`
		Kind      groupKind       `json:"kind"`
		Namespace string          `json:"namespace"`
		Name      string          `json:"name"`
		Operation string          `json:"operation"`
		Object    json.RawMessage `json:"object"`
	}
	groupKind struct {
		Group   string `json:"group"`
		Version string `json:"version"`
		Kind    string `json:"kind"`
	}
	response struct {
		UID       string   `json:"uid"`
		Allowed   bool     `json:"allowed"`
		Patch     []byte   `json:"patch,omitempty"` // base64 in JSON, as the API requires
		PatchType string   `json:"patchType,omitempty"`
		Status    *status  `json:"status,omitempty"`
		Warnings  []string `json:"warnings,omitempty"`
	}
	status struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
)

const (
	apiVersion = "admission.k8s.io/v1"
	kindReview = "AdmissionReview"
)

// errReview is the error of Answer for a body that is not a review request.
var errReview = errors.New("no AdmissionReview")

// Verdict is the result of a review, for the log.
type Verdict struct {
	Namespace, Name string
	Injected        bool
	Denial          string // why the Pod was not admitted, "" if it was
	Notes           []string
}

// Answer answers one AdmissionReview. A Pod without the annotation retryproxy.io/inject:
// "true" is admitted unchanged. A Pod with it that cannot be injected is refused with the
// reason: otherwise it would run unnoticed without the sidecar. The error is for a body
// that is no review request.
func Answer(body []byte, o inject.Options) (answer []byte, verdict Verdict, err error) {
	var r review
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, verdict, fmt.Errorf("%w: %w", errReview, err)
	}
	if r.APIVersion != apiVersion || r.Kind != kindReview || r.Request == nil || r.Request.UID == "" {
		return nil, verdict, fmt.Errorf("%w: expected %s of %s with a request", errReview, kindReview, apiVersion)
	}
	verdict.Namespace, verdict.Name = r.Request.Namespace, r.Request.Name
	res := decide(r.Request, o, &verdict)
	answer, err = json.Marshal(review{APIVersion: apiVersion, Kind: kindReview, Response: res})
	return answer, verdict, err
}

func decide(q *request, o inject.Options, v *Verdict) *response {
	res := &response{UID: q.UID, Allowed: true}
	if q.Kind != (groupKind{"", "v1", "Pod"}) || q.Operation != "CREATE" {
		return res
	}
	deny := func(err error) *response {
		v.Denial = err.Error()
		return &response{UID: q.UID, Status: &status{Code: 422, Message: "retryproxy: " + oneLine(err)}}
	}
	pod, err := decodePod(q.Object)
	if err != nil {
		return deny(err)
	}
	if v.Name == "" {
		v.Name = nameOf(pod)
	}
	injected, notes, err := inject.Pod(pod, o)
	switch {
	case err != nil:
		return deny(err)
	case injected == nil: // not requested
		return res
	}
	operations := diff("", pod, injected)
	if len(operations) == 0 { // it was injected before
		return res
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return deny(err)
	}
	v.Injected, v.Notes = true, notes
	res.Patch, res.PatchType, res.Warnings = patch, "JSONPatch", warnings(notes)
	return res
}

// oneLine returns the error without line breaks: kubectl get events shows only the first line of a message.
func oneLine(err error) string {
	var lines []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
}

// decodePod parses a Pod and keeps numbers as they are written.
func decodePod(object json.RawMessage) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	var pod map[string]any
	if err := d.Decode(&pod); err != nil {
		return nil, fmt.Errorf("the Pod: %w", err)
	}
	return pod, nil
}

// nameOf returns the name that the Pod will have, as far as it is known.
func nameOf(pod map[string]any) string {
	metadata, _ := pod["metadata"].(map[string]any)
	if name, _ := metadata["name"].(string); name != "" {
		return name
	}
	generated, _ := metadata["generateName"].(string)
	return generated + "*"
}

// maxWarning is the maximum length of a warning that the API server shows completely.
const maxWarning = 120

func warnings(notes []string) []string {
	var all []string
	for _, n := range notes {
		n = "retryproxy: " + n
		if len(n) > maxWarning {
			n = n[:maxWarning-3] + "..."
		}
		all = append(all, n)
	}
	return all
}

// operation is an operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// diff returns the operations that turn one object into another that has all of its keys, as
// injection removes none. It descends into objects; lists are replaced as a whole. "add" also
// replaces a value (section 4.1).
func diff(path string, from, to map[string]any) []operation {
	var all []operation
	for _, key := range slices.Sorted(maps.Keys(to)) {
		below := path + "/" + pointer.Replace(key)
		old, there := from[key]
		oldMap, wasMap := old.(map[string]any)
		newMap, isMap := to[key].(map[string]any)
		switch {
		case there && reflect.DeepEqual(old, to[key]):
		case wasMap && isMap:
			all = append(all, diff(below, oldMap, newMap)...)
		default:
			all = append(all, operation{"add", below, to[key]})
		}
	}
	return all
}

// pointer escapes a key for a JSON pointer (RFC 6901 section 3).
var pointer = strings.NewReplacer("~", "~0", "/", "~1")
