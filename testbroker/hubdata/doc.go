// Package hubdata has the data of a hub of package testbroker: the settings of its parts, such as
// [C2DOptions], what a test passes to it, such as [C2D] and [MethodCall], and what the hub records,
// such as [Message], [Twin], [MethodRecord] and [Upload].
//
// Values are copies unless stated otherwise. Slices in them must not be modified.
package hubdata
