package plot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxDocument limits what Decode reads: a figure of MaxPoints points with bands, and the rest of
// the document.
const maxDocument = 256 << 20

// Document is how one command passes a figure to another: a JSON object with the member "figure".
// It may have other members.
type Document struct {
	Figure *Figure `json:"figure"`
}

// Decode reads a Document of at most 256 MiB and returns its figure, which is valid. The error says
// what is wrong.
func Decode(r io.Reader) (*Figure, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxDocument {
		return nil, fmt.Errorf("more than %d bytes of JSON", maxDocument)
	}
	var d struct {
		Figure json.RawMessage `json:"figure"`
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("no JSON object: %w", err)
	}
	if len(d.Figure) == 0 || string(d.Figure) == "null" {
		return nil, errors.New(`no figure: expected a JSON object with the member "figure"`)
	}
	var f Figure
	strict := json.NewDecoder(bytes.NewReader(d.Figure))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&f); err != nil {
		return nil, fmt.Errorf("figure: %w", err)
	}
	if err := f.Validate(); err != nil {
		return nil, fmt.Errorf("figure: %w", err)
	}
	return &f, nil
}
