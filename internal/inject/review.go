package inject

import "errors"

// Pod injects into one Pod that asks for it by the annotation
// retryproxy.io/inject: "true", and returns it changed; nil when it does not ask.
// The object is as encoding/json decodes it with numbers as json.Number, and
// stays as it was. The error says what cannot be done. Services are not seen: a
// port has to have a name, or its Service be said to be elsewhere.
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
