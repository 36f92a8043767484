package show

import (
	"bytes"
	"encoding/json"
	"os"

	"github.com/retryproxy/retryproxy/plot"
	"github.com/retryproxy/retryproxy/plot/picture"
)

// JSON writes v into a file.
func JSON(file string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o666)
}

// PNG draws a figure into a file.
func PNG(file string, f *plot.Figure, size picture.Size) error {
	if err := f.Validate(); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := picture.PNG(&b, f, size); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o666)
}
