//go:build !poison && !race

package buffer

// watch has no effect in this build.
type watch struct{}

func begin() (w watch)    { return w }
func (watch) use()        {}
func (watch) mustBeNone() {}
func (watch) end()        {}
func (watch) move() watch { return watch{} }
func (watch) keeps(bool)  {}
