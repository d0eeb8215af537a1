//! Case and evidence → verdict. The only module that decides.
