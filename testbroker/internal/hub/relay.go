package hub

import "sync"

// relay passes on what waits in queue, in order, one at a time; meanwhile mu, which is held, is
// released. While another is at it, busy is set, and that one goes on with what has come.
func relay[T any](mu *sync.Mutex, busy *bool, queue *[]T, pass func(T)) {
	if *busy {
		return
	}
	*busy = true
	for len(*queue) > 0 {
		next := (*queue)[0]
		*queue = (*queue)[1:]
		mu.Unlock()
		pass(next)
		mu.Lock()
	}
	*busy = false
}
