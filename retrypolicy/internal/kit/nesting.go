package kit

// Link is a budget, and those around it. The zero Link is not in use.
type Link struct {
	budget any // a pointer
	outer  *Link
}

// Contains reports whether budget is in the list; nil is the empty one.
func (l *Link) Contains(budget any) bool {
	for ; l != nil; l = l.outer {
		if l.budget == budget {
			return true
		}
	}
	return false
}

// Add makes l the list of budget and those in outer, and returns it.
func (l *Link) Add(budget any, outer *Link) *Link {
	*l = Link{budget, outer}
	return l
}
