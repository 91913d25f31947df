package hub

import "sync"

// relay passes the entries of queue in order, one at a time. mu must be held; relay releases it
// during each pass. busy is set while a goroutine relays; another call then returns at once, and
// that goroutine passes the new entries.
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
