//go:build !poison && !race

package admission

// watch has no effect in this build.
type watch struct{}

func (watch) begin(bool)  {}
func (watch) settle(bool) {}
