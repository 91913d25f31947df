package main

import (
	"testing"
	"time"
)

// Every store that is compared takes messages from concurrent callers.
func TestStoresTakeMessages(t *testing.T) {
	for _, s := range allStores {
		for _, synced := range []bool{true, false} {
			if rate, err := s.fill(t.Context(), synced, 4, 20*time.Millisecond); err != nil || rate <= 0 {
				t.Errorf("%s, synced %v: %v messages a second, %v", s.name, synced, rate, err)
			}
		}
	}
}
