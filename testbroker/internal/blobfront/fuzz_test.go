package blobfront

import (
	"testing"
)

func FuzzBlockList(f *testing.F) {
	f.Add("<BlockList><Latest>L1</Latest><Committed>C2</Committed><Uncommitted>U3</Uncommitted></BlockList>")
	f.Add("<BlockList/>")
	f.Add("<BlockList><Latest>")
	f.Fuzz(func(t *testing.T, body string) {
		list, err := parseBlockList([]byte(body))
		if err != nil && len(list) > 0 || len(list) > len(body)/len("<Latest/>") {
			t.Errorf("%q: %d blocks, %v", body, len(list), err)
		}
	})
}
