package inject

import "errors"

// Pod injects into one Pod that has the annotation retryproxy.io/inject: "true", and returns the
// changed Pod, or nil without the annotation. The object is as encoding/json decodes it, with
// numbers as json.Number; it is not changed. The error says what is impossible. Services are
// unknown here, so the port needs a name, or the options must say that the Service is elsewhere.
func Pod(object map[string]any, o Options) (injected map[string]any, notes []string, err error) {
	root := fromJSON(object)
	metadata := get(root, "metadata")
	if yes, _, err := Wanted(metadata); err != nil || !yes {
		return nil, nil, err
	}
	o, err = o.With(metadata)
	if err != nil {
		return nil, nil, err
	}
	p := &pod{Options: o, template: root, metadata: metadata, spec: get(root, "spec")}
	if p.spec == nil {
		return nil, nil, errors.New("it has no spec")
	}
	if err := p.inject(); err != nil {
		return nil, nil, err
	}
	changed, _ := toJSON(root).(map[string]any)
	return changed, p.notes, nil
}
