package a

func (t *T) second() { t.Shared = 2 }
