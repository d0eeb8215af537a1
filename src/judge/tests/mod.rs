//! Row by row, technique by technique, by property.
