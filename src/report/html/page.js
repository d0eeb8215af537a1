'use strict';
(() => {
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const one = (selector) => document.querySelector(selector);
  const trials = all('.trial').map((element) => ({
    element,
    data: element.dataset,
    text: element.textContent.toLowerCase(),
  }));
  const [search, severity, sandbox] = ['#search', '#severity', '#sandbox'].map(one);
  const verdicts = all('button.count');

  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const off = new Set(
      verdicts.filter((button) => button.getAttribute('aria-pressed') === 'false').map((button) => button.dataset.verdict),
    );
    let shown = 0;
    for (const { element, data, text } of trials) {
      const fits =
        !off.has(data.verdict) &&
        Number(data.severity) >= Number(severity.value) &&
        (sandbox.value === '' || data.sandbox === sandbox.value) &&
        words.every((word) => text.includes(word));
      element.hidden = !fits;
      if (fits) shown += 1;
    }
    for (const section of all('section.trials')) {
      section.hidden = all('.trial', section).every((trial) => trial.hidden);
    }
    one('#shown').textContent = `${shown} of ${trials.length} shown`;
    one('#none').hidden = shown > 0 || trials.length === 0;
  };

  for (const field of [search, severity, sandbox]) field.addEventListener('input', filter);
  for (const button of verdicts) {
    button.addEventListener('click', () => {
      button.setAttribute('aria-pressed', String(button.getAttribute('aria-pressed') === 'false'));
      filter();
    });
  }
  // On paper nothing can be unfolded: what went wrong is printed whole.
  let unfolded = [];
  addEventListener('beforeprint', () => {
    unfolded = all('#wrong .trial:not([open])');
    for (const element of unfolded) element.open = true;
  });
  addEventListener('afterprint', () => {
    for (const element of unfolded) element.open = false;
  });
  one('.filters').hidden = trials.length === 0;
  filter();
})();
