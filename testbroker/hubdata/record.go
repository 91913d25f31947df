package hubdata

// A Record is an entry of a hub's state, as a [Store] keeps it.
type Record struct {
	// Table and Key name the record.
	Table, Key string
	// Value is its content; nil in a change means that the record is gone. With an empty key all
	// records of the table are gone.
	Value []byte
}
