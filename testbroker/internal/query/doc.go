// Package query is the hub's query language for twins: it parses the text of a query and runs it on
// JSON documents. It knows neither hubs nor HTTP.
//
// # Grammar
//
//	query      = "SELECT" [ "TOP" number ] columns "FROM" collection
//	             [ "WHERE" condition ] [ "GROUP" "BY" path { "," path } ] [ ";" ] .
//	columns    = "*" | column { "," column } .
//	column     = ( path | aggregate ) [ "AS" segment ] .
//	aggregate  = "count" "(" ")" | ( "avg" | "min" | "max" | "sum" ) "(" path ")" .
//	collection = "devices" [ "." ( "modules" | "jobs" ) ] .
//	target     = "*" | [ "WHERE" ] condition | "FROM" collection [ "*" | "WHERE" condition ] .
//
//	condition  = and { "OR" and } .
//	and        = not { "AND" not } .
//	not        = { "NOT" } comparison .
//	comparison = sum [ operator sum | ( "IN" | "NIN" ) list ] .
//	operator   = "=" | "!=" | "<>" | "<" | "<=" | ">" | ">=" .
//	sum        = product { ( "+" | "-" ) product } .
//	product    = operand { ( "*" | "/" | "%" ) operand } .
//	operand    = literal | path | call | "(" condition ")" .
//	call       = name "(" condition { "," condition } ")" .
//	list       = "[" [ literal { "," literal } ] "]" .
//	literal    = string | [ "-" ] number | "true" | "false" | "null" | "undefined" .
//
//	path       = segment { "." segment | "[" string "]" } .
//	segment    = name | "[[" any text "]]" .
//	name       = ( letter | "_" | "$" ) { letter | digit | "_" | "$" } .
//	number     = decimal, with or without fraction and exponent, or "0x" and hexadecimal digits .
//	string     = characters between two ' or two ", with the escapes \' \" \\ and \uXXXX .
//
// Keywords, functions and aggregates are free in letter case. A keyword is a segment only in
// brackets: tags.[[group]]. A target is the condition of a job or a configuration. A path may begin
// with the name of its collection: devices.deviceId, devices.modules.moduleId.
//
// # Functions
//
//	is_defined(x)                               also true for null
//	is_null(x) is_bool(x) is_number(x) is_string(x) is_object(x) is_array(x) is_primitive(x)
//	startswith(x, y) endswith(x, y) contains(x, y)   also starts_with, ends_with; of strings
//	as_number(x)                                the number that a string states
//
// # Meaning
//
// Members that the service names are found in any letter case: the top level of a document, and
// the level below it except in tags. Other members are found as they are written.
//
// A path that leads nowhere is undefined. A comparison with undefined is undefined. Values of
// different types are unequal, and no order exists between them. Two objects or two arrays compare
// as undefined. NOT, AND and OR have three values: true OR undefined is true, NOT undefined is
// undefined. A document is selected only if the condition is true.
//
// A row has the members that SELECT names: by alias, else by the last segment of the path, else $1,
// $2 and so on for aggregates. An undefined value has no member. With an aggregate or GROUP BY
// there is a row for each group, in the order in which the groups appear; each path in SELECT must
// be in GROUP BY then. avg and sum take the numbers of a group; min and max do as well, or its
// strings if it has no number. count counts the documents.
//
// Sources: the page "IoT Hub query language for device and module twins, jobs, and message routing"
// of the service's guide, and queries in its tools. The names of aggregates without alias, the
// order of groups, and values of mixed types in one group are choices of this package.
//
// # Limits
//
// A query has at most 8,192 bytes, and nests at most 32 levels deep.
package query
