package budget

import "math/rand/v2"

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }
