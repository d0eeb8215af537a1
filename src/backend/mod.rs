//! Kinds of sandbox: each runs one program in a fresh sandbox and reports what it saw.
