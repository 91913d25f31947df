package amqp

import (
	"sync"
	"time"
)

// idleLinks are the links for telemetry of a connection that nobody uses at the moment. The library
// does not tell that such a link is gone before something is sent, so they are looked at, every
// lookEvery, all of them from one timer: a thousand idle devices have neither a goroutine nor a
// timer for it.
type idleLinks struct {
	mu    sync.Mutex // guards what follows; held for memory only
	links map[*outLink]struct{}
	timer *time.Timer // runs while there are any; nil before the first
	over  bool
	looks sync.WaitGroup
}

// add has a link looked at, until it is removed.
func (i *idleLinks) add(l *outLink) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.over {
		return
	}
	if i.links == nil {
		i.links = make(map[*outLink]struct{})
	}
	i.links[l] = struct{}{}
	switch {
	case len(i.links) > 1:
	case i.timer == nil:
		i.timer = time.AfterFunc(lookEvery, i.look)
	default:
		i.timer.Reset(lookEvery)
	}
}

// remove has it looked at no more, but for a look that is under way.
func (i *idleLinks) remove(l *outLink) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.links, l)
	if len(i.links) == 0 && i.timer != nil {
		i.timer.Stop()
	}
}

// look looks at all. It is the timer's.
func (i *idleLinks) look() {
	i.mu.Lock()
	if i.over || len(i.links) == 0 {
		i.mu.Unlock()
		return
	}
	i.looks.Add(1)
	defer i.looks.Done()
	links := make([]*outLink, 0, len(i.links))
	for l := range i.links {
		links = append(links, l)
	}
	i.timer.Reset(lookEvery)
	i.mu.Unlock()
	for _, l := range links {
		if err := lookAt(l.sender); err != nil {
			i.remove(l)
			l.s.telemetry.lostIdle(l, err)
		}
	}
}

// stop ends the looks, and waits for one that is under way.
func (i *idleLinks) stop() {
	i.mu.Lock()
	i.over = true
	if i.timer != nil {
		i.timer.Stop()
	}
	i.mu.Unlock()
	i.looks.Wait()
}
