// Package httpretry judges the answers of HTTP services for package retrypolicy: whether to retry a
// status, and how long the service asks to wait.
//
//	r := retrypolicy.Retrier{Policy: policy, Classify: httpretry.Classify}
//
// The operation must return a failed answer as an error that knows its status ([StatusError]).
package httpretry
