// The script of the website's pages: light or dark colours, contents, copying, and the search in
// pkgdown's index. Nothing is loaded from elsewhere, and the pages also work as files.

(() => {
  const root = document.documentElement;
  const system = matchMedia('(prefers-color-scheme: dark)');

  // Applies the theme before the page is painted.
  const chosen = () => { try { return localStorage.getItem('theme'); } catch { return null; } };
  const applyTheme = () => { root.dataset.theme = chosen() ?? (system.matches ? 'dark' : 'light'); };
  applyTheme();
  system.addEventListener('change', applyTheme);

  function toggleTheme() {
    const next = root.dataset.theme === 'dark' ? 'light' : 'dark';
    try { localStorage.setItem('theme', next); } catch { /* Without storage the choice lasts for one page. */ }
    root.dataset.theme = next;
  }

  const element = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };

  /** Fills the table of contents from the headings, and marks the section that is being read. */
  function fillContents() {
    const toc = document.getElementById('toc');
    const headings = [...document.querySelectorAll('main h2, main h3')]
      .map((heading) => [heading, heading.id || heading.closest('[id]:not(main)')?.id]).filter(([, id]) => id);
    if (!toc || headings.length < 2) return;
    let list = element('ul');
    toc.append(list);
    const links = new Map();
    for (const [heading, id] of headings) {
      const link = element('a', { href: `#${id}`, textContent: heading.textContent.trim() });
      links.set(heading, link);
      if (heading.tagName === 'H2' || !list.lastChild) list.append(element('li', {}, link));
      else {
        const inner = list.lastChild.querySelector('ul') ?? list.lastChild.appendChild(element('ul'));
        inner.append(element('li', {}, link));
      }
    }
    const observer = new IntersectionObserver((seen) => {
      for (const { target, isIntersecting } of seen) {
        if (!isIntersecting) continue;
        toc.querySelector('[aria-current]')?.removeAttribute('aria-current');
        links.get(target).setAttribute('aria-current', 'true');
      }
    }, { rootMargin: '0px 0px -70% 0px' });
    for (const heading of links.keys()) observer.observe(heading);
  }

  /** Gives each block of code a button that copies it without the output. */
  function addCopyButtons() {
    for (const block of document.querySelectorAll('main pre')) {
      const button = element('button', { type: 'button', className: 'copy', textContent: 'Copy' });
      button.addEventListener('click', async () => {
        await navigator.clipboard.writeText(block.textContent.replace(/^#>.*\n?/gm, '').trimEnd());
        button.textContent = 'Copied';
        setTimeout(() => { button.textContent = 'Copy'; }, 1500);
      });
      const frame = element('div', { className: 'code' });
      block.replaceWith(frame);
      frame.append(block, button);
    }
  }

  /** Loads the index on first use. A script loads from files, too, which fetch() refuses. */
  let index;
  const loadIndex = (base) => (index ??= new Promise((done, failed) => {
    const script = element('script', { src: `${base}search.js`, onload: () => done(window.searchIndex), onerror: failed });
    document.head.append(script);
  }));

  /**
   * Ranks an entry for the words: the name of a function and its usage count most, then names of pages and headings. 0 if a
   * word is missing.
   */
  function rank(entry, words) {
    const fields = [[entry.title, 8], [entry.what, 5], [entry.previous_headings, 2], [entry.code, 1], [entry.text, 1]];
    const name = entry.title.split(' — ')[1]?.toLowerCase();
    const isUsage = entry.id === 'ref-usage';
    let sum = 0;
    for (const word of words) {
      let best = 0;
      for (const [text, weight] of fields) {
        const at = (text ?? '').toLowerCase().indexOf(word);
        if (at < 0) continue;
        const starts = at === 0 || /\W/.test(text[at - 1]);
        const ends = !/\w/.test(text[at + word.length] ?? ' ');
        best = Math.max(best, weight * (1 + starts + ends));
      }
      if (best === 0) return 0;
      if (word === name) best += 30;
      if (isUsage && entry.code?.toLowerCase().includes(`${word}(`)) best += 20;
      sum += best;
    }
    return sum;
  }

  function setUpSearch() {
    const input = document.getElementById('search');
    const found = document.getElementById('found');
    let selected = -1;
    const close = () => { found.hidden = true; input.setAttribute('aria-expanded', 'false'); };
    const select = (next) => {
      const rows = [...found.querySelectorAll('[role="option"]')];
      if (rows.length === 0) return;
      selected = (next + rows.length) % rows.length;
      rows.forEach((row, at) => row.setAttribute('aria-selected', String(at === selected)));
      input.setAttribute('aria-activedescendant', rows[selected].id);
      rows[selected].scrollIntoView({ block: 'nearest' });
    };
    const show = async () => {
      const words = input.value.toLowerCase().split(/[\s()]+/).filter(Boolean);
      if (words.join('').length < 2) { close(); return; }
      const entries = await loadIndex(input.dataset.root);
      const ofPage = new Map(); // At most three rows of a page, so that others are seen as well.
      const best = entries.map((entry) => [rank(entry, words), entry]).filter(([score]) => score > 0).sort(([a], [b]) => b - a)
        .filter(([, { path }]) => ofPage.set(path, (ofPage.get(path) ?? 0) + 1).get(path) <= 3).slice(0, 12);
      found.replaceChildren(...best.map(([, entry], at) => {
        const where = [entry.dir, entry.title === entry.what ? '' : entry.title].filter(Boolean).join(' › ');
        const href = `${input.dataset.root}${entry.path.replace(/^\//, '')}${entry.id ? `#${entry.id}` : ''}`;
        const link = element('a', { href, tabIndex: -1 }, entry.what, element('small', { textContent: where }));
        const row = element('li', { id: `found-${at}` }, link);
        row.setAttribute('role', 'option');
        return row;
      }));
      if (best.length === 0) found.append(element('li', {}, element('p', { textContent: 'Nothing found.' })));
      found.hidden = false;
      input.setAttribute('aria-expanded', 'true');
      select(0);
    };
    input.addEventListener('input', show);
    input.addEventListener('focus', show);
    input.addEventListener('keydown', (event) => {
      if (event.key === 'ArrowDown' || event.key === 'ArrowUp') select(selected + (event.key === 'ArrowDown' ? 1 : -1));
      else if (event.key === 'Escape') close();
      else return;
      event.preventDefault();
    });
    input.form.addEventListener('submit', (event) => {
      event.preventDefault();
      found.querySelector('[aria-selected="true"] a')?.click();
    });
    found.addEventListener('click', close);
    document.addEventListener('click', (event) => { if (!input.form.contains(event.target)) close(); });
    document.addEventListener('keydown', (event) => {
      if (event.key === '/' && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) { event.preventDefault(); input.focus(); }
    });
  }

  document.addEventListener('DOMContentLoaded', () => {
    document.getElementById('theme').addEventListener('click', toggleTheme);
    fillContents();
    addCopyButtons();
    setUpSearch();
  });
})();
